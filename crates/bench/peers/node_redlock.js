// redlock for Node.js as a contestant, on one ioredis client.

const readline = require("node:readline");
const Redis = require("ioredis");
const Redlock = require("redlock");

const LEASE = 600_000;
const say = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");
const key = (number) => "payment:order-" + String(number).padStart(7, "0");
const now = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));

async function pairs(once, tasks, millis) {
  const times = [];
  const started = performance.now();
  const one = async (number) => {
    for (;;) {
      const began = performance.now();
      if (began - started >= millis) return;
      const lock = await once.lock(key(number), 30_000);
      await lock.unlock();
      times.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: tasks }, (_, number) => one(number)));
  const seconds = (performance.now() - started) / 1000;
  times.sort((a, b) => a - b);
  say({ pairs: times.length, seconds, p50_us: times[times.length >> 1] * 1000 });
}

async function main() {
  const client = new (Redis.default ?? Redis)(process.argv[2]);
  await client.ping();
  // As its documentation has it: 200 ms between two tries, give or take.
  const waits = new Redlock([client], { retryCount: -1, retryDelay: 200, retryJitter: 200 });
  const once = new Redlock([client], { retryCount: 0 });
  const version = (name) => require(name + "/package.json").version;
  say({ version: `redlock ${version("redlock")}, ioredis ${version("ioredis")}, Node.js ${process.versions.node}` });
  let baton;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, ...numbers] = line.split(" ");
    if (word === "pairs") {
      await pairs(once, Number(numbers[0]), Number(numbers[1]));
    } else if (word === "take" || word === "wait") {
      if (word === "wait") say({ waiting: true });
      baton = await waits.lock("baton", LEASE);
      say({ at_ns: Number(now()) });
    } else if (word === "release") {
      const started = now();
      await baton.unlock();
      say({ at_ns: Number(started) });
    } else if (word === "hold") {
      for (let number = Number(numbers[0]); number < Number(numbers[1]); number++) await once.lock(key(number), LEASE);
      say({ held: true });
    }
  }
  client.disconnect();
}

main();
