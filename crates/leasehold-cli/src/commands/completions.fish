
# Behind two dashes stands a command with its arguments.
function __leasehold_complete_command
    set -l words (commandline -opc)
    if set -l dashes (contains -i -- -- $words)
        __fish_complete_subcommand --fcs-skip=$dashes
    end
end

complete -c leasehold -n 'contains -- -- (commandline -opc)' -x -a '(__leasehold_complete_command)'
