//! Examples for the manual pages: of which command, what it does, and what to type.

pub(super) const EXAMPLES: &[(&str, &str, &str)] = &[
    ("leasehold", "Run a script unless it is running already:", "leasehold run nightly-report -- ./report.sh"),
    ("leasehold", "See who holds what:", "leasehold ls"),
    ("run", "Run a script unless it is running already, on this host:", "leasehold run nightly-report -- ./report.sh"),
    (
        "run",
        "The same on all hosts that share a server:",
        "leasehold run --store redis://db:6379/0 nightly-report -- ./report.sh",
    ),
    (
        "run",
        "From cron: do nothing, and say nothing, if it is running:",
        "leasehold run -n -E 0 nightly-report -- ./report.sh",
    ),
    (
        "run",
        "Three at a time, each with a device of its own:",
        "leasehold run --permits 3 gpu -- sh -c './render.sh $LEASEHOLD_SLOT'",
    ),
    ("run", "Any number of readers, or one writer:", "leasehold run --shared catalogue -- ./report.sh"),
    ("run", "Two locks, or none:", "leasehold run --all account:1 account:2 -- ./transfer.sh"),
    ("run", "Wait for five minutes at most:", "leasehold run --wait 5m nightly-report -- ./report.sh"),
    ("init", "Let root and the group ops share the default store of this host:", "leasehold init --group ops"),
    (
        "acquire",
        "Hold a lock for a few steps of a script:",
        "id=$(leasehold acquire deploy --ttl 10m | jq -r .lock_id)",
    ),
    ("extend", "Hold it for ten minutes more:", "leasehold extend \"$id\" --ttl 10m"),
    ("release", "Give it back:", "leasehold release \"$id\""),
    ("ls", "The locks whose keys start with job:, for a program:", "leasehold ls --json job:"),
    ("show", "Who holds the lock, and who waits for it?", "leasehold show nightly-report"),
    ("watch", "Write down who had which lock:", "leasehold watch --json >> locks.log"),
    ("force-release", "End the lock of a holder that hangs:", "leasehold force-release nightly-report"),
    (
        "force-release",
        "End that of one reader among several, by the fence that show has told:",
        "leasehold force-release --fence 017949688590725 catalogue",
    ),
    ("doctor", "Is this store good for locks?", "leasehold doctor --store postgres://app@db/app"),
    (
        "bench",
        "How quick is this store, for one and for 64 tasks?",
        "leasehold bench --store redis://db:6379/0 --tasks 64",
    ),
    ("bench", "The same as a figure:", "leasehold bench --store redis://db:6379/0 --plot latencies.svg"),
    ("migrate", "Make the tables of a PostgreSQL store:", "leasehold migrate --store postgres://owner@db/app"),
    ("completions", "For bash:", "leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold"),
    ("man", "For this user:", "leasehold man ~/.local/share/man/man1"),
];
