
# Behind two dashes stands a command with its arguments.
_leasehold_or_command() {
    local i cur=${COMP_WORDS[COMP_CWORD]}
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset $((i + 1))
        elif declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        elif ((COMP_CWORD == i + 1)); then
            mapfile -t COMPREPLY < <(compgen -A command -A file -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -A file -- "$cur")
        fi
        return
    done
    _leasehold "$@"
}

complete -F _leasehold_or_command -o bashdefault -o default leasehold
