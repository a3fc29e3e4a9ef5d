# Draftmark's part on the host of a tuned systemd unit. It holds the lock and the original, makes every change, and
# puts everything back when nobody keeps it alive. POSIX sh, coreutils, util-linux, systemd; `ss` where there is one.
# agent_restore.sh, agent_stop.sh, agent_switch.sh and this file make one script; agent.py joins them.
#
#   sh -c 'SCRIPT=$(cat); eval "$SCRIPT"' draftmark COMMAND UNIT SCOPE … < script
#       open LEASE_S TOKEN HOLDER [FILE…]      restore WAIT_S [force|HOLDER [leave]]      status
#   sh STATE/agent COMMAND …
#       beat|measure|compare|clear|look|stop|start|leave|close|restore TOKEN …   check
#       edit|keep TOKEN SHA256 < drop-in
#
# SCOPE is --system or --user. Answers are key=value lines. Exit status: 0 done, 1 failed (why is on stderr), 3 the
# token is no longer the holder's, 4 busy, 5 somebody else holds the unit, 6 not finished yet: call again.
#
# STATE, $RUN/draftmark/UNIT, appears and vanishes as a whole, by a rename:
#   agent unit scope lease_s   this script and what it is about       token holder heartbeat   who holds it, alive when
#   original/                  what was there: files, sums, facts     lock                     held while a command runs
#   touched   the service may run something else than the original    made      directories that are ours to remove
#   keeping before/            a keep that is half done: undo it      kept      a keep that is done: only close is left
#   replaced                   a restore has asked for a restart of this invocation
#   left      somebody else has stopped it: it is not started again
#   deaf                       the invocation whose sockets were closed so that it ends without a new request
#   measuring                  since when a measurement runs, or blank        checked   when the switch last looked

FAILED=1 LOST=3 BUSY=4 HELD=5 PENDING=6
FREEZE_S=3
VOID=restoring-----------------------

say() { printf '%s\n' "$*" 2>/dev/null || return 0; } # to whoever asked, who may be gone
note() { printf '%s\n' "$*" | cat; }                   # into a file, whose disk may be full: cat says so
fail() { printf '%s\n' "$*" >&2; exit $FAILED; }

# --- where things are ---------------------------------------------------------------------------------------------

locate() { # UNIT SCOPE
    UNIT=$1 SCOPE=$2
    case $UNIT in '' | .* | */*) fail "not a unit's name: $UNIT" ;; esac
    if [ "$SCOPE" = --user ]; then
        XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}
        export XDG_RUNTIME_DIR
        RUN=$XDG_RUNTIME_DIR
        UNITS=$RUN/systemd/user
        LASTING=${XDG_CONFIG_HOME:-${HOME:-/}/.config}/systemd/user
        PAST=${XDG_STATE_HOME:-${HOME:-/}/.local/state}/draftmark
    else
        RUN=/run UNITS=/run/systemd/system LASTING=/etc/systemd/system PAST=/var/lib/draftmark
    fi
    BASE=$RUN/draftmark
    STATE=$BASE/$UNIT
    DROPIN=$UNITS/$UNIT.d/zz-draftmark.trial.conf
    KEEP=$LASTING/$UNIT.d/zz-draftmark.conf
    SWITCH=draftmark-$(systemd-escape -- "$UNIT")
    if [ ${#SWITCH} -gt 200 ]; then
        SWITCH=draftmark-$(printf %s "$UNIT" | sha256sum | cut -c1-32)
    fi
}

sc() { systemctl "$SCOPE" --no-pager --no-ask-password "$@" 9>&-; }
prop() { sc show --value -p "$1" -- "$UNIT"; }

# One look at the unit: ACTIVE SUB INVOCATION JOB LOAD RESULT CODE STATUS
observe() {
    ACTIVE= SUB= INVOCATION= JOB= LOAD= RESULT= CODE= STATUS=
    looked=$(sc show -p ActiveState,SubState,InvocationID,Job,LoadState,Result,ExecMainCode,ExecMainStatus -- "$UNIT") ||
        return 1
    while IFS='=' read -r key value; do
        case $key in
        ActiveState) ACTIVE=$value ;;
        SubState) SUB=$value ;;
        InvocationID) INVOCATION=$value ;;
        Job) JOB=${value#0} ;;
        LoadState) LOAD=$value ;;
        Result) RESULT=$value ;;
        ExecMainCode) CODE=$value ;;
        ExecMainStatus) STATUS=$value ;;
        esac
    done <<END
$looked
END
}

is_up() { case $ACTIVE in active | activating | reloading | refreshing) return 0 ;; esac; return 1; }

# The effective command lines, without when and as what they last ran.
effective() { prop ExecStart | while IFS= read -r line; do say "${line%% ; start_time=*}"; done | cat; }
tell_effective() { effective | while IFS= read -r line; do say "exec=$line"; done; }

# --- time: hundredths of a second since boot, which no clock change moves -----------------------------------------

now() {
    read -r up rest </proc/uptime
    NOW=${up%.*}${up#*.}
}

# Since the time in FILE; far too long when it cannot be read or is of another boot.
elapsed() { # FILE
    now
    beat= ELAPSED=99999999
    { read -r beat <"$1"; } 2>/dev/null
    case $beat in *[!0-9]* | '') return ;; esac
    [ "$beat" -le "$NOW" ] && ELAPSED=$((NOW - beat))
}

age() { elapsed "$STATE/heartbeat"; AGE=$ELAPSED; } # of the last sign of life

lease() { LEASE=0; { read -r LEASE <"$STATE/lease_s"; } 2>/dev/null; LEASE=${LEASE:-0}; }
overdue() { age; lease; [ "$AGE" -gt $((LEASE * 100)) ]; }
# In place, so that a full disk cannot take it away.
mark() { printf '%-20s\n' "$2" 1<>"$1"; } # FILE WORD
beat() { now; mark "$STATE/heartbeat" "$NOW"; }

# --- files: all or nothing ------------------------------------------------------------------------------------------

put() { # FILE < content
    if cat >"$1.new" && sync "$1.new" && mv -f -- "$1.new" "$1"; then
        sync "${1%/*}" 2>/dev/null
        return 0
    fi
    rm -f -- "$1.new" 2>/dev/null
    return 1
}

make_folder() { # PATH, LIST: notes in LIST what did not exist, so that it can be taken away again
    [ -d "$1" ] && return 0
    make_folder "${1%/*}" "$2" && note "$1" >>"$2" && mkdir -- "$1"
}

listed() { # LINE FILE
    [ -e "$2" ] && while IFS= read -r entry; do [ "$entry" != "$1" ] || return 0; done <"$2"
    return 1
}

unmake_folders() { # LIST
    [ -e "$1" ] || return 0
    folders=$(tac -- "$1")
    while IFS= read -r folder; do [ -z "$folder" ] || rmdir -- "$folder" 2>/dev/null; done <<END
$folders
END
    return 0
}

reload() { sc daemon-reload || { say "problem=systemctl daemon-reload failed"; return 1; }; }

# --- lock and fence -------------------------------------------------------------------------------------------------

# Holds the lock of the STATE that is there now; 1 when there is none, 2 when it could not be had in time.
lock() { # [SECONDS]
    while [ -e "$STATE/lock" ]; do
        { command exec 9<"$STATE/lock"; } 2>/dev/null || return 1
        if [ -n "${1:-}" ]; then flock -w "$1" 9 || return 2; else flock 9 || return 2; fi
        [ "$STATE/lock" -ef /proc/self/fd/9 ] && return 0
    done
    return 1
}

holder_token() { HELD_BY=; { read -r HELD_BY <"$STATE/token"; } 2>/dev/null; }

fenced() { # TOKEN
    lock 30
    case $? in
    1) exit $LOST ;;
    2) say "busy=another command of Draftmark is running" && exit $BUSY ;;
    esac
    holder_token
    [ "$HELD_BY" = "$1" ] || exit $LOST
}

tell_holder() {
    age
    say "holder=$(cat "$STATE/holder" 2>/dev/null)"
    say "last_sign_s=$((AGE / 100))"
}

# --- open -----------------------------------------------------------------------------------------------------------

cmd_open() { # LEASE_S TOKEN HOLDER [FILE…]
    lease_s=$1 token=$2 holder=$3
    shift 3
    if [ -e "$STATE" ]; then
        if ! overdue && holder_token && [ "$HELD_BY" != "$VOID" ]; then tell_holder && exit $HELD; fi
        say "stale=1" && put_back 15 || exit $?
    elif [ -e "$DROPIN" ]; then
        say "stale=1" && put_back_without_state 15 || exit $?
    fi
    observe && [ "$LOAD" = loaded ] || fail "$UNIT is ${LOAD:-not known to systemd}"
    [ "$(prop NeedDaemonReload)" != yes ] ||
        fail "files of $UNIT were changed and not loaded: the next start would bring more than what is tried"
    id=$(prop Id)
    [ "$id" = "$UNIT" ] || fail "$UNIT is another name of $id: use $id"
    trap 'undo_open' EXIT
    begin_state && note "$lease_s" >"$FRESH/lease_s" && note "$token" >"$FRESH/token" &&
        note "$holder" >"$FRESH/holder" && save_original "$@" && mark "$FRESH/measuring" '' && now &&
        mark "$FRESH/heartbeat" "$NOW" && mark "$FRESH/checked" "$NOW" || exit $FAILED
    # Fails when there is a STATE by now. From here on it is ours.
    mv -T -- "$FRESH" "$STATE" 2>/dev/null || { [ -e "$STATE" ] && tell_holder && exit $HELD; exit $FAILED; }
    OPENED=1
    arm || exit $FAILED
    trap - EXIT
    observe
    say "state=$STATE" && say "invocation=$INVOCATION" && say "active=$ACTIVE" && say "period_s=$PERIOD"
    say "dropin=$DROPIN" && say "kept=$KEEP"
}

# FRESH: what will be STATE, with its lock held.
begin_state() {
    remove_half_opened
    [ -d "$BASE" ] || mkdir -m 755 -p -- "$BASE" || return 1
    FRESH=$BASE/.new.$$.$UNIT
    mkdir -m 700 -- "$FRESH" && true >"$FRESH/lock" && exec 9<"$FRESH/lock" && flock -w 5 9 &&
        note "$UNIT" >"$FRESH/unit" && note "$SCOPE" >"$FRESH/scope" && true >"$FRESH/made"
}

undo_open() {
    [ -n "${FRESH:-}" ] && rm -rf -- "$FRESH"
    if [ -n "${OPENED:-}" ]; then dismantle; else rmdir -- "$BASE" 2>/dev/null; fi
}

remove_half_opened() { # of an `open` that was killed: its process is gone, and nobody holds its lock
    for left in "$BASE"/.new.* "$BASE"/.gone.*; do
        [ -d "$left" ] || continue
        pid=${left#"$BASE"/.*.}
        [ ! -e "/proc/${pid%%.*}" ] || continue
        if [ ! -e "$left/lock" ] || flock -n "$left/lock" true; then rm -rf -- "$left"; fi
    done
}

save_original() { # FILE…
    kept=$FRESH/original
    mkdir -- "$kept" "$kept/files" && sc show -- "$UNIT" >"$kept/show" && effective >"$kept/exec" &&
        unit_files | sort -u >"$kept/unit_files" && prop InvocationID >"$kept/invocation" &&
        prop ActiveState >"$kept/active" && prop UnitFileState >"$kept/enabled" || return 1
    save_was "$kept/was" || return 1
    save_dependents >"$kept/dependents" || return 1
    { cat "$kept/unit_files" && for file; do say "$file"; done; } | sort -u >"$kept/paths" || return 1
    number=0
    while IFS= read -r file; do
        number=$((number + 1))
        [ -f "$file" ] && [ -r "$file" ] || continue
        cp -L --preserve=mode,ownership,timestamps -- "$file" "$kept/files/$number" || return 1
        sum "$kept/files/$number" && note "$SUM $number $file" >>"$kept/sums" || return 1
    done <"$kept/paths"
}

save_was() { if is_up; then note up; else note down; fi >"$1"; }

sum() { SUM=$(sha256sum <"$1") && SUM=${SUM%% *}; }

# The unit's file and drop-ins. `systemctl cat` has each path as a comment above the file, and in the form that a
# shell can open; a file can hold a comment like it, about something else.
unit_files() {
    fragment=$(prop FragmentPath)
    prop SourcePath | while IFS= read -r file; do [ -z "$file" ] || say "$file"; done
    sc cat -- "$UNIT" 2>/dev/null | while IFS= read -r line; do
        case $line in "# $fragment" | '# /'*/systemd/*.d/*.conf) say "${line#'# '}" ;; esac
    done
}

# Units that systemd stops with this one, and does not start with it again.
save_dependents() {
    for other in $(prop RequiredBy) $(prop BoundBy) $(prop ConsistsOf) $(prop RequisiteOf); do
        sc is-active --quiet -- "$other" && say "$other"
    done | sort -u
}

# --- the trial's drop-in --------------------------------------------------------------------------------------------

cmd_edit() { # SHA256 < the drop-in
    receive "$1" && true >>"$STATE/touched" || exit $FAILED
    make_folder "${DROPIN%/*}" "$STATE/made" && rm -f -- "$STATE/dropin.before" || exit $FAILED
    if [ -e "$DROPIN" ]; then cp -- "$DROPIN" "$STATE/dropin.before" || exit $FAILED; fi
    put_aside
    note "$1" >>"$STATE/dropin.sums" || exit $FAILED
    put "$DROPIN" <"$STATE/dropin.wanted" || { take_edit_back; exit $FAILED; }
    reload && in_force "$DROPIN" || {
        take_edit_back
        fail "systemd does not take this drop-in: LoadState=$LOAD; it was taken back"
    }
    rm -f -- "$STATE/dropin.before" "$STATE/dropin.wanted"
    tell_effective
}

# Whole, or not at all: the pipe of a controller that is gone ends as the file would.
receive() { # SHA256 < the drop-in
    cat >"$STATE/dropin.wanted" && sum "$STATE/dropin.wanted" || return 1
    [ "$SUM" = "${1:-}" ] || fail "the drop-in did not arrive whole; nothing was changed"
}

in_force() { # FILE
    observe || return 1
    [ "$LOAD" = loaded ] || return 1
    file=$1
    case $1 in *\\* | *' '*) file=${1##*/} ;; esac # systemd prints such a path in an escaped form
    case $(prop DropInPaths) in *"$file"*) return 0 ;; esac
    return 1
}

take_edit_back() {
    LOAD_SEEN=$LOAD
    if [ -e "$STATE/dropin.before" ]; then mv -f -- "$STATE/dropin.before" "$DROPIN"; else remove_dropin; fi
    rm -f -- "$STATE/dropin.wanted"
    reload
    LOAD=$LOAD_SEEN
}

# What somebody has written into the trial's drop-in is not thrown away.
put_aside() {
    [ -e "$DROPIN" ] && [ -e "$STATE/dropin.sums" ] && sum "$DROPIN" && ! listed "$SUM" "$STATE/dropin.sums" || return 0
    saved=$PAST/$UNIT.trial.edited.conf
    mkdir -p -- "$PAST" && cp -p -- "$DROPIN" "$saved" && say "saved=$saved"
    return 0
}

remove_dropin() {
    put_aside
    rm -f -- "$DROPIN.new" "$DROPIN" || return 1
    # The directory is ours to remove if it is on the list; the list is kept until the end.
    listed "${DROPIN%/*}" "$STATE/made" && rmdir -- "${DROPIN%/*}" 2>/dev/null
    return 0
}

cmd_clear() {
    remove_dropin && reload || exit $FAILED
    tell_effective
}

# --- keep: the choice becomes the one file that lasts ---------------------------------------------------------------

# `before/` has what these files were, so that a keep which does not end well can be undone at any point.
lasting_files() {
    say "$KEEP"
    for kind in previous.conf previous.made kept made; do say "$PAST/$UNIT.$kind"; done
}

cmd_keep() { # SHA256 < the drop-in
    receive "$1" && rm -rf -- "$STATE/before" && mkdir -- "$STATE/before" || exit $FAILED
    observe && was_invoked=$INVOCATION && was_exec=$(effective) || exit $FAILED
    lasting_files | while IFS= read -r file; do
        [ ! -e "$file" ] || cp -p -- "$file" "$STATE/before/${file##*/}" || exit 1
    done || exit $FAILED
    true >"$STATE/made.lasting" && true >"$STATE/keeping" || exit $FAILED
    write_keep || { take_keep_back; exit $FAILED; }
    observe
    if [ "$was_exec" != "$(effective)" ] || [ "$was_invoked" != "$INVOCATION" ]; then
        take_keep_back
        fail "the kept drop-in has not the effect of the one that was tried; it was taken back"
    fi
    mv -f -- "$STATE/keeping" "$STATE/kept" || exit $FAILED
    say "kept=$KEEP"
    dismantle
}

write_keep() {
    make_folder "$PAST" "$STATE/made.lasting" && make_folder "${KEEP%/*}" "$STATE/made.lasting" || return 1
    rm -f -- "$PAST/$UNIT.previous.conf" "$PAST/$UNIT.previous.made"
    if [ -e "$KEEP" ]; then
        put "$PAST/$UNIT.previous.conf" <"$KEEP" || return 1
        if [ -e "$PAST/$UNIT.made" ]; then put "$PAST/$UNIT.previous.made" <"$PAST/$UNIT.made" || return 1; fi
    fi
    { [ ! -e "$PAST/$UNIT.made" ] || cat "$PAST/$UNIT.made"; cat "$STATE/made.lasting"; } >"$STATE/made.all" &&
        put "$PAST/$UNIT.made" <"$STATE/made.all" && sum "$STATE/dropin.wanted" &&
        say "sha256=$SUM" | put "$PAST/$UNIT.kept" && put "$KEEP" <"$STATE/dropin.wanted" || return 1
    rm -f -- "$STATE/dropin.trial"
    if [ -e "$DROPIN" ]; then cp -- "$DROPIN" "$STATE/dropin.trial" || return 1; fi
    remove_dropin && reload && in_force "$KEEP"
}

take_keep_back() {
    undo_keep
    if [ -e "$STATE/dropin.trial" ]; then
        make_folder "${DROPIN%/*}" "$STATE/made" && put "$DROPIN" <"$STATE/dropin.trial"
    fi
    reload
}

undo_keep() {
    lasting_files | while IFS= read -r file; do
        if [ -e "$STATE/before/${file##*/}" ]; then
            mkdir -p -- "${file%/*}" && put "$file" <"$STATE/before/${file##*/}" || exit 1
        else
            rm -f -- "$file.new" "$file" || exit 1
        fi
    done || return 1
    unmake_folders "$STATE/made.lasting"
    rmdir -- "$PAST" 2>/dev/null
    rm -f -- "$STATE/keeping"
}

cmd_compare() {
    original=$STATE/original
    compare_files
}

cmd_leave() { true >>"$STATE/left" || exit $FAILED; }

cmd_close() {
    [ ! -e "$DROPIN" ] || fail "the trial's drop-in is still there: $DROPIN"
    dismantle
}

cmd_status() {
    observe
    say "active=$ACTIVE" && say "sub=$SUB" && say "load=$LOAD" && say "invocation=$INVOCATION"
    tell_effective
    [ ! -e "$DROPIN" ] || say "dropin=$DROPIN"
    [ ! -e "$KEEP" ] || say "kept=$KEEP"
    if [ -e "$STATE" ]; then
        say "state=$STATE"
        tell_holder
        lease
        say "lease_s=$LEASE"
    fi
}

main() {
    # Whoever asked may be gone before the answer: what was begun is ended all the same.
    trap '' HUP INT PIPE
    export LC_ALL=C TZ=UTC SYSTEMD_COLORS=0 SYSTEMD_URLIFY=0
    umask 022
    case $0 in
    */agent)
        read -r unit <"${0%/*}/unit" && read -r scope <"${0%/*}/scope" || exit $LOST
        command=$1
        shift
        locate "$unit" "$scope"
        case $command in
        check) cmd_check ;;
        beat) cmd_beat "$1" ;;
        restore) cmd_restore_own "$@" ;;
        measure | look | compare | leave) fenced "$1" && shift && "cmd_$command" "$@" ;;
        edit | clear | stop | start | keep | close)
            fenced "$1"
            shift
            spare_measurement
            case $command in edit | stop | start) keep_armed ;; esac
            "cmd_$command" "$@"
            ;;
        *) fail "not a command: $command" ;;
        esac
        ;;
    *)
        command=$1
        locate "$2" "$3"
        shift 3
        case $command in
        open | restore | status) "cmd_$command" "$@" ;;
        *) fail "not a command: $command" ;;
        esac
        ;;
    esac
}

main "$@"
