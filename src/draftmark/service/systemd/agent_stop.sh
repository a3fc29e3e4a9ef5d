# Stopping without losing a request that the server has accepted, and starting.
#
# `look`, then the engine is asked whether it is idle, then `stop`: what came in between shows as a new connection, as
# more bytes received, or as bytes that nobody has read. While it is compared, the server is frozen; when it is at
# rest its sockets are closed under it where the kernel can (INET_DIAG_DESTROY), so that it cannot take a request when
# it goes on only to end: a client that comes then is refused, and finds the next server when it tries again.

cmd_look() { # PORT
    connections "$1" >"$STATE/look.new" && mv -f -- "$STATE/look.new" "$STATE/look" || exit $FAILED
    say "connections=$(wc -l <"$STATE/look")"
    say "gate=$(gate_strength "$1")"
}

# strong: by what each connection has received; weak: without `ss`; none: nothing listens where we can see it.
gate_strength() { # PORT
    hex=$(printf '%04X' "$1")
    while read -r slot local remote state rest; do
        [ "${local##*:}" = "$hex" ] && [ "$state" = 0A ] && {
            if has_ss; then say strong; else say weak; fi
            return
        }
    done <<END
$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
END
    say none
}

has_ss() { [ -z "${DRAFTMARK_WITHOUT_SS:-}" ] && command -v ss >/dev/null 2>&1; }

# A line for each connection to PORT, sorted: PEER LOCAL RECEIVED VERDICT; the verdict is `-`, or why it is not at rest.
connections() { # PORT
    if has_ss; then from_ss "$1"; else from_proc "$1"; fi | sort
}

from_ss() { # PORT
    set -f
    ss -Htin state established state close-wait "( sport = :$1 )" | {
        peer=
        while IFS= read -r line; do
            case $line in
            [[:blank:]]*) set -- $line && details "$@" ;;
            *) emit && set -- $line && state=$1 unread=$2 peer=$5 here=$4 received=0 sent=0 since_in= since_out= ;;
            esac
        done
        emit
    }
}

details() {
    for word in "$@"; do
        case $word in
        bytes_received:*) received=${word#*:} ;;
        bytes_sent:*) sent=${word#*:} ;;
        lastsnd:*) since_out=${word#*:} ;;
        lastrcv:*) since_in=${word#*:} ;;
        esac
    done
}

emit() {
    [ -n "$peer" ] || return 0
    verdict=-
    if [ "$unread" != 0 ]; then
        verdict=unread
    elif [ "$state" = ESTAB ] && [ "$received" != 0 ] && unanswered; then
        verdict=unanswered
    fi
    say "$peer $here $received $verdict"
}

# The server has received something after the last that it sent. Between its socket and its queue a request is seen
# nowhere else; after half a minute it would have got there, so it is a client that began and went silent.
unanswered() {
    [ "${since_in:-99999}" -lt 30000 ] || return 1
    [ "$since_in" -lt "${since_out:-0}" ] || [ "$sent" = 0 ]
}

from_proc() { # PORT
    hex=$(printf '%04X' "$1")
    while read -r slot local remote state queues rest; do
        [ "${local##*:}" = "$hex" ] || continue
        case $state in 01 | 08) ;; *) continue ;; esac
        verdict=-
        [ "${queues#*:}" = 00000000 ] || verdict=unread
        say "$remote $local 0 $verdict"
    done <<END
$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
END
}

cmd_stop() { # PORT MODE TIMEOUT_S
    observe || exit $FAILED
    now
    before=$NOW invocation=$INVOCATION
    true >>"$STATE/touched" || exit $FAILED
    ! is_up || rm -f -- "$STATE/left" # whoever had stopped it, or another, has started it again
    if [ "$2" = gate ]; then
        [ -e "$STATE/look" ] || fail "stop needs a look before it"
        GATE=$(gate_strength "$1")
        is_up && pass_gate "$1"
    else
        GATE=off
    fi
    timeout "$3" systemctl "$SCOPE" --no-ask-password stop -- "$UNIT" 9>&- || stop_status=$?
    [ "${stop_status:-0}" != 124 ] || say "waited_in_vain=$3"
    rm -f -- "$STATE/look"
    now
    observe
    say "seconds=$(((NOW - before) / 100)).$(printf '%02d' $(((NOW - before) % 100)))"
    say "gate=$GATE" && say "active=$ACTIVE" && say "sub=$SUB"
    say "result=$RESULT" && say "code=$CODE" && say "status=$STATUS" && say "invocation=$invocation"
    tell_kills "$invocation"
    case $ACTIVE in inactive | failed) return 0 ;; esac
    [ "${stop_status:-0}" = 124 ] || exit $FAILED
}

# Returns when the server has its SIGTERM; exits when something came in.
pass_gate() { # PORT
    trap 'thaw' EXIT
    trap 'exit $FAILED' TERM
    closable=
    ! owns_listeners "$1" || closable=1
    guard_freeze
    sc kill -s STOP -- "$UNIT" || fail "the service cannot be frozen"
    connections "$1" >"$STATE/look.new" || fail "the connections cannot be read"
    reason=$(what_came_in)
    reason=${reason:-$(who_waits "$1")}
    if [ -n "$reason" ]; then
        thaw
        say "busy=$reason" && exit $BUSY
    fi
    [ -z "$closable" ] || close_sockets "$1"
    now
    deadline=$((NOW + FREEZE_S * 50))
    # The signal is to be on its way before the server goes on, also to processes that systemd does not thaw itself.
    sc stop --no-block -- "$UNIT" || fail "systemctl stop failed"
    while observe && is_up && [ "$NOW" -lt $deadline ]; do sleep 0.01 9>&-; now; done
    is_up && GATE=late
    [ "$SUB" != stop ] || GATE=late # the unit's own ExecStop= comes first, and needs a server that runs
    thaw
    trap - EXIT TERM
}

what_came_in() {
    while read -r peer here received verdict; do
        [ "$verdict" = - ] || { say "$verdict bytes from $peer" && return; }
    done <"$STATE/look.new"
    cut -d' ' -f1-3 "$STATE/look" >"$STATE/look.was"
    cut -d' ' -f1-3 "$STATE/look.new" | comm -13 "$STATE/look.was" - | {
        read -r peer here received && say "a request from $peer"
    }
    return 0
}

# Every listener at that port is a process of the unit.
owns_listeners() { # PORT
    has_ss && ss -Hltnp "( sport = :$1 )" 2>/dev/null | {
        owned=1
        while IFS= read -r line; do
            pid=${line#*pid=} && pid=${pid%%,*}
            case $pid in '' | *[!0-9]*) exit 1 ;; esac
            in_unit "$pid" || exit 1
            owned=0
        done
        exit $owned
    }
}

in_unit() { # PID
    while read -r group; do
        case $group/ in *"/$UNIT/"*) return 0 ;; esac
    done <"/proc/$1/cgroup"
    return 1
} 2>/dev/null

# Connections that are made, and that the server has not taken yet.
who_waits() { # PORT
    has_ss || return 0
    ss -Hltn "( sport = :$1 )" | while read -r state queue rest; do
        [ "$queue" = 0 ] || { say "$queue connections that wait to be taken" && return; }
    done
}

# A server that is deaf and lives is restarted by a restore, whatever its invocation.
close_sockets() { # PORT
    note "$INVOCATION" >"$STATE/deaf" || return 0
    ss -KHtn state listening state established state close-wait "( sport = :$1 )" >/dev/null 2>&1
    [ -n "$(ss -Hltn "( sport = :$1 )")" ] || say "closed=1"
} 2>/dev/null

thaw() {
    sc kill -s CONT -- "$UNIT" 2>/dev/null
    rm -f -- "$STATE/frozen" "$STATE/look.new" "$STATE/look.was"
    [ -z "${GUARD:-}" ] || kill -s KILL -- "-$GUARD" 2>/dev/null
    GUARD=
}

# Should this very process be killed between freezing and thawing, another one thaws.
guard_freeze() {
    true >"$STATE/frozen" || exit $FAILED
    setsid sh -c 'sleep "$1"; [ ! -e "$2" ] || exec systemctl "$3" kill -s CONT -- "$4"' \
        guard "$FREEZE_S" "$STATE/frozen" "$SCOPE" "$UNIT" 9>&- </dev/null >/dev/null 2>&1 &
    GUARD=$!
}

# Lines by which systemd says that it lost patience.
tell_kills() { # INVOCATION
    [ -n "$1" ] || return 0
    field=INVOCATION_ID
    [ "$SCOPE" = --system ] || field=USER_INVOCATION_ID
    journalctl -q --no-pager -o cat "$field=$1" 2>/dev/null | tail -n 50 | while IFS= read -r line; do
        case $line in
        *'timed out. Killing'* | *'timed out. Aborting'* | *'timed out. Terminating'*) say "timeout=$line" ;;
        *'with signal SIGKILL'*) say "killed=$line" ;;
        esac
    done
}

cmd_start() {
    true >>"$STATE/touched" || exit $FAILED
    sc reset-failed -- "$UNIT" 2>/dev/null
    sc start --no-block -- "$UNIT" || exit $FAILED
    observe
    say "active=$ACTIVE" && say "invocation=$INVOCATION"
}
