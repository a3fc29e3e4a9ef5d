# The dead man's switch, and the mark that keeps everybody else's hands off a unit that is measured.

quoted() { # a path as a word of a unit file
    rest=$1 out=
    while [ -n "$rest" ]; do
        char=${rest%"${rest#?}"}
        rest=${rest#?}
        case $char in '\' | '"') char="\\$char" ;; '%') char=%% ;; '$') char='$$' ;; esac
        out=$out$char
    done
    printf '"%s"' "$out"
}

arm() {
    # `made` and `agent` first: whatever is interrupted after them can be taken apart again.
    printf '%s\n' "$SCRIPT" | put "$STATE/agent" && make_folder "$UNITS" "$STATE/made" && start_switch
}

period() {
    lease
    PERIOD=$((LEASE / 6))
    [ $PERIOD -ge 1 ] || PERIOD=1
    [ $PERIOD -le 5 ] || PERIOD=5
}

start_switch() {
    period
    put "$UNITS/$SWITCH.service" <<END || return 1
[Unit]
Description=Puts $UNIT back when Draftmark is gone
CollectMode=inactive-or-failed
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/bin/sh $(quoted "$STATE/agent") check
TimeoutStartSec=infinity
OOMScoreAdjust=-900
SyslogIdentifier=draftmark
SyslogLevel=notice
LogLevelMax=notice
END
    # The propagation, which a timer never makes use of, is a reference: without one systemd forgets a unit that has
    # stopped, and with it how its last process ended.
    put "$UNITS/$SWITCH.timer" <<END || return 1
[Unit]
Description=Watches over Draftmark at work on $UNIT
CollectMode=inactive-or-failed
StartLimitIntervalSec=0
PropagatesReloadTo=$UNIT

[Timer]
OnActiveSec=$PERIOD
OnUnitInactiveSec=$PERIOD
AccuracySec=100ms
END
    reload && sc start -- "$SWITCH.timer" && is_armed
}

is_armed() { sc is-active --quiet -- "$SWITCH.timer"; }

# Somebody may have stopped the timer. Nothing is changed without a switch that works.
keep_armed() {
    is_armed && return
    say "rearmed=1"
    start_switch || fail "the dead man's switch is gone and cannot be armed again: $SWITCH.timer"
}

# Nothing of ours is left afterwards. It may be the switch's own service that runs this, so that is not stopped.
dismantle() {
    sc stop -- "$SWITCH.timer" 2>/dev/null
    rm -f -- "$UNITS/$SWITCH.timer" "$UNITS/$SWITCH.service" "$UNITS/$SWITCH.timer.new" "$UNITS/$SWITCH.service.new"
    unmake_folders "$STATE/made"
    reload || return 1
    gone=$BASE/.gone.$$.$UNIT
    mv -T -- "$STATE" "$gone" || return 1
    rm -rf -- "$gone" || rm -rf -- "$gone"
    rmdir -- "$BASE" 2>/dev/null
    return 0
}

cmd_beat() { # TOKEN
    holder_token
    [ "$HELD_BY" = "$1" ] && beat 2>/dev/null || exit $LOST
    # As cheap as can be while somebody measures: systemd is asked only when the switch has not looked for long.
    period
    elapsed "$STATE/checked"
    [ "$ELAPSED" -gt $((PERIOD * 300)) ] || return 0
    fenced "$1"
    keep_armed
    mark "$STATE/checked" "$NOW"
}

cmd_check() {
    now
    mark "$STATE/checked" "$NOW" 2>/dev/null
    if holder_token && [ "$HELD_BY" != "$VOID" ] && ! overdue; then return 0; fi
    lock || return 0
    if holder_token && [ "$HELD_BY" != "$VOID" ] && ! overdue; then return 0; fi
    say "$UNIT is put back: no sign of life for $((AGE / 100)) s from $(cat "$STATE/holder")"
    restore_locked 0
}

# --- a measurement ------------------------------------------------------------------------------------------------

cmd_measure() { # [SINCE]: it begins; without, it has ended
    mark "$STATE/measuring" "${1:-}" || exit $FAILED
}

spare_measurement() { # exits while one runs
    since=
    { read -r since <"$STATE/measuring"; } 2>/dev/null
    [ -n "$since" ] || return 0
    tell_holder
    lease
    say "measuring=$since" && say "left_s=$((LEASE - AGE / 100))"
    exit $BUSY
}
