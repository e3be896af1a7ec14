# Shared by the scripts beside it; sourced, never run.
#
#   say TEXT ...           a line of progress, on standard output
#   die TEXT ...           a message on standard error, exit 1
#   cpus                   how many jobs to build with
#   run_group LIMIT CMD... runs CMD in a session and process group of its own, for at most LIMIT
#                          seconds; what it leaves behind in the group is ended, by the group's id,
#                          before this returns. Its result is in $group_rc (124 or 137: the limit
#                          was reached).
#   end_group              ends the group that run_group is waiting for, for use in a trap

me=scripts/${0##*/}

say()
{
    printf '%s\n' "$*"
}

die()
{
    printf '%s: %s\n' "$me" "$*" >&2
    exit 1
}

cpus()
{
    nproc 2>/dev/null || echo 2
}

group_pid=
group_rc=0

run_group()
{
    group_limit=$1
    shift
    # A background child of a script leads no group, so setsid does not fork: its pid is the group's
    # id.
    setsid timeout --kill-after=10 "$group_limit" "$@" </dev/null &
    group_pid=$!
    group_rc=0
    wait "$group_pid" || group_rc=$?
    end_group
}

# What is asked to end has 5 seconds to end its own children, which may be in groups of theirs.
end_group()
{
    if [ -n "$group_pid" ] && kill -TERM "-$group_pid" 2>/dev/null; then
        group_tenths=0
        while [ "$group_tenths" -lt 50 ] && kill -0 "-$group_pid" 2>/dev/null; do
            sleep 0.1
            group_tenths=$((group_tenths + 1))
        done
        kill -KILL "-$group_pid" 2>/dev/null || :
    fi
    group_pid=
}
