# Putting a unit back. Whatever interrupts it, called again it goes on where it was and ends the same.
#
# A restore has begun when the token is void: no controller can change anything from then on. It has ended when STATE
# is gone.

cmd_restore() { # WAIT_S [force|HOLDER [leave]]: what a dead holder had kept is left, instead of undone
    CLEANED=
    [ -e "$STATE" ] || await_half_opened
    if [ -e "$STATE" ]; then
        may_take "${2:-}"
        ALREADY_KEPT=
        put_back "$1" "${2:-}"
        [ -n "$ALREADY_KEPT" ] && [ "${3:-}" != leave ] || return 0
    elif [ -n "$CLEANED" ] && [ ! -e "$DROPIN" ]; then # what was kept before that run stays
        say "removed=$BASE, of a run that had changed nothing yet" && tell_active && return
    fi
    put_back_without_state "$1"
}

# A unit is taken from a holder that was alive a moment ago only by force, or by whoever names it and knows it dead;
# from one that measures not even by force.
may_take() { # [force|HOLDER]
    holder_token
    [ "$HELD_BY" = "$VOID" ] || overdue || [ "$1" = "$(cat "$STATE/holder")" ] && return
    spare_measurement
    [ "$1" = force ] || { tell_holder && exit $HELD; }
}

cmd_restore_own() { # TOKEN WAIT_S: the holder itself
    holder_token
    [ "$HELD_BY" = "$1" ] || [ "$HELD_BY" = "$VOID" ] || exit $LOST
    [ "$HELD_BY" = "$VOID" ] || spare_measurement
    put_back "$2" force
}

put_back() { # WAIT_S [force|HOLDER]
    lock 10
    case $? in
    1) say "restored=1" && say "by=somebody else, just now" && tell_active && return 0 ;;
    2) observe; say "pending=another command of Draftmark is running; $UNIT is $ACTIVE ($SUB)" && exit $PENDING ;;
    esac
    may_take "${2:-}"
    restore_locked "$1"
}

restore_locked() { # WAIT_S, 0 for as long as it takes
    { printf '%s\n' "$VOID" 1<>"$STATE/token"; } 2>/dev/null
    WAIT=$1 PROBLEM=
    original=$STATE/original
    if [ -e "$STATE/kept" ]; then
        dismantle && say "kept=$KEEP" || exit $FAILED
        ALREADY_KEPT=1
        return
    fi
    [ ! -e "$STATE/frozen" ] || thaw
    if [ -e "$STATE/keeping" ]; then undo_keep || exit $FAILED; fi # before the reload
    [ ! -e "$DROPIN" ] || say "removed=$DROPIN"
    remove_dropin && reload && observe || exit $FAILED
    was=$(cat "$original/was")
    say "was=$was"
    left=
    if [ "$was" = up ] && [ -e "$STATE/left" ] && stays_down; then
        left=1 && say "left=1"
    elif [ "$was" = up ]; then bring_up "$(cat "$original/invocation")"; else bring_down; fi
    [ -n "$left" ] || start_dependents # they would start it
    compare
    tell_active
    dismantle || PROBLEM=${PROBLEM:-"the switch could not be taken apart"}
    [ -z "$PROBLEM" ] || { say "problem=$PROBLEM"; exit $FAILED; }
    say "restored=1"
}

tell_active() { observe; say "active=$ACTIVE" && say "invocation=$INVOCATION"; }

stays_down() { # unless somebody starts it just now
    case $ACTIVE in deactivating) return 0 ;; inactive | failed) [ -z "$JOB" ] ;; *) return 1 ;; esac
}

bring_up() { # INVOCATION of the original
    deaf=
    [ ! -e "$STATE/deaf" ] || read -r deaf <"$STATE/deaf"
    if [ "$INVOCATION" != "${deaf:-none}" ] && is_up; then
        if [ ! -e "$STATE/touched" ] || [ "$INVOCATION" = "$1" ]; then return; fi
    fi
    renew "$STATE/replaced"
}

bring_down() {
    case $ACTIVE in
    inactive) return ;;
    failed) ;;
    *)
        sc stop --no-block -- "$UNIT" || { PROBLEM="systemctl stop failed"; return; }
        await is_down
        ;;
    esac
    [ "$(cat "$original/active")" = failed ] || sc reset-failed -- "$UNIT" 2>/dev/null
}

is_down() { case $ACTIVE in inactive | failed) [ -z "$JOB" ] && return 0 ;; esac; return 1; }

# Restart the unit, once: MARK has the invocation that had to go, from before it was asked to.
renew() { # MARK
    REPLACED=
    if [ -e "$1" ]; then read -r REPLACED <"$1"; else REPLACED=${INVOCATION:-none}; fi
    say "$REPLACED" >"$1" 2>/dev/null # on a full disk it may be restarted once more
    for attempt in 1 2 3; do
        if ! is_renewed; then
            if [ "$LOAD" != loaded ]; then
                say "load=$LOAD"
                PROBLEM="$UNIT is $LOAD by now and cannot be started; "
                if is_up; then PROBLEM="${PROBLEM}what runs was left alone"; else PROBLEM="${PROBLEM}nothing of it runs"; fi
                return
            fi
            sc reset-failed -- "$UNIT" 2>/dev/null
            [ -n "$JOB" ] || sc restart --no-block -- "$UNIT" || { PROBLEM="systemctl restart $UNIT failed"; return; }
            say "restarted=1"
        fi
        await is_settled
        is_up && return
    done
    PROBLEM="$UNIT was started as it was before, and did not stay up: $ACTIVE, $RESULT"
}

# Under way is enough: a model can take minutes to load, and it loads by the original's words.
is_renewed() { is_up && [ -n "$INVOCATION" ] && [ "$INVOCATION" != "$REPLACED" ]; }
is_settled() {
    if is_renewed; then
        [ "$ACTIVE" = active ] || [ "$waited" -ge 500 ]
        return
    fi
    is_down
}

await() { # CONDITION
    now
    since=$NOW told=0
    while :; do
        observe || return
        now
        waited=$((NOW - since))
        "$1" && return
        if [ "$WAIT" -gt 0 ] && [ $waited -gt $((WAIT * 100)) ]; then
            say "pending=$UNIT is $ACTIVE ($SUB)" && exit $PENDING
        fi
        if [ $((waited - told)) -ge 1000 ]; then
            say "progress=$UNIT is $ACTIVE ($SUB) after $((waited / 100)) s"
            told=$waited
        fi
        sleep 0.2 9>&-
    done
}

start_dependents() {
    [ -e "$original/dependents" ] || return 0
    while IFS= read -r other; do
        sc is-active --quiet -- "$other" || { sc start --no-block -- "$other" && say "started=$other"; }
    done <"$original/dependents"
}

# What somebody else has changed meanwhile stays, and is told.
compare() {
    [ -e "$original/exec" ] || return 0
    compare_files
    [ "$(prop UnitFileState)" = "$(cat "$original/enabled")" ] || say "differs=whether it is enabled"
    if [ "$(effective)" = "$(cat "$original/exec")" ]; then say "exec=same"; else say "exec=differs"; fi
}

# By their bytes, and by name which there are: a daemon-reload, or a file that was only touched, is no change.
compare_files() {
    [ ! -e "$original/sums" ] || while read -r wanted number file; do
        if [ ! -e "$file" ]; then
            say "missing=$file"
        elif ! sum "$file" || [ "$SUM" != "$wanted" ]; then
            say "changed=$file"
        fi
    done <"$original/sums"
    [ -e "$original/unit_files" ] || return 0
    number=0
    while IFS= read -r file; do
        number=$((number + 1))
        [ -e "$original/files/$number" ] || [ ! -f "$file" ] || [ ! -r "$file" ] || say "new=$file"
    done <"$original/paths"
    is_now=$(unit_files)
    while IFS= read -r file; do
        [ -z "$file" ] || is_ours "$file" || listed "$file" "$original/unit_files" || say "new=$file"
    done <<END
$is_now
END
    while IFS= read -r file; do
        case "
$is_now
" in *"
$file
"*) ;; *) is_ours "$file" || say "missing=$file" ;; esac
    done <"$original/unit_files"
}

# A `watch` changes nothing of what runs.
is_ours() { # FILE
    case ${1##*/} in "${DROPIN##*/}" | zz-draftmark-watch.conf) return 0 ;; esac
    return 1
}

# --- without STATE: somebody has removed it, or a `keep` is to be undone --------------------------------------------

# What is left of Draftmark becomes a STATE whose restore has begun, so that this too can be gone on with.
put_back_without_state() { # WAIT_S
    if [ ! -e "$DROPIN" ] && [ ! -e "$KEEP" ] && [ ! -e "$PAST/$UNIT.kept" ]; then
        say "nothing=1" && tell_active && return
    fi
    trap 'undo_open' EXIT
    begin_state && note "$VOID" >"$FRESH/token" && note '{}' >"$FRESH/holder" && true >"$FRESH/touched" || exit $FAILED
    observe && mkdir -- "$FRESH/original" && note "$ACTIVE" >"$FRESH/original/active" &&
        note none >"$FRESH/original/invocation" && save_was "$FRESH/original/was" || exit $FAILED
    if [ -e "$DROPIN" ]; then
        note "${DROPIN%/*}" >"$FRESH/made" || exit $FAILED
    else
        plan_undo_of_keep && say "undone_keep=1" || exit $FAILED
    fi
    mv -T -- "$FRESH" "$STATE" || exit $FAILED
    trap - EXIT
    put_back "$1"
}

# A controller can be gone, and the command by which it takes hold of the unit still run: there is a STATE soon.
await_half_opened() {
    tries=0
    while half_opened; do
        remove_half_opened
        half_opened || { CLEANED=1; rmdir -- "$BASE" 2>/dev/null; }
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { say "pending=another command of Draftmark is taking hold of it" && exit $PENDING; }
        sleep 0.1
    done
}

half_opened() {
    for left in "$BASE"/.new.*."$UNIT"; do [ ! -d "$left" ] || return 0; done
    return 1
}

plan_undo_of_keep() {
    past=$PAST/$UNIT
    mkdir -- "$FRESH/before" && true >"$FRESH/keeping" || return 1
    if [ -e "$past.previous.conf" ]; then
        say "put_back=$KEEP"
        cp -- "$past.previous.conf" "$FRESH/before/${KEEP##*/}" || return 1
    else
        say "removed=$KEEP"
    fi
    # The folders that were made for it go with it, unless they were made for the one before.
    if [ -e "$past.previous.made" ]; then
        cp -- "$past.previous.made" "$FRESH/before/$UNIT.made" || return 1
    elif [ -e "$past.made" ]; then
        cp -- "$past.made" "$FRESH/made.lasting" || return 1
    fi
    # What somebody wrote into our file is not thrown away.
    if [ -e "$past.kept" ] && [ -e "$KEEP" ] && sum "$KEEP" && ! listed "sha256=$SUM" "$past.kept"; then
        cp -p -- "$KEEP" "$past.edited.conf" && say "saved=$past.edited.conf"
    fi
}
