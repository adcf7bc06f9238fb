#!/usr/bin/env bash
# Runs a batch under a real Slurm of one node, on loopback, in a folder of its own. The array has 8 tasks: one
# has a bad input, one is killed with signal 9 and one is requeued while it runs. Then the script submits the
# plan again, and compares every bundle with that of a plain `ferry convert`.
#   slurm.sh FERRY TESTDATA
# Needs slurmctld, slurmd and munged (Debian: slurm-wlm, munge), and a host name that resolves; needs no
# special rights. Exits with 77 if the host name does not resolve.
set -euo pipefail
ferry=$(realpath "$1")
testdata=$(realpath "$2")
host=$(hostname -s)
getent hosts "$host" >/dev/null || { echo "the host name $host does not resolve"; exit 77; }
dir=$(mktemp -d /tmp/fsl.XXXXXX)
export SLURM_CONF=$dir/slurm.conf

fail() {
  echo "FAILED: $*" >&2
  tail -n 5 "$dir"/log/* "$dir"/plans/*.slurm/*.out 2>/dev/null >&2 || true
  exit 1
}
# wait_for SECONDS COMMAND... repeats the command until it succeeds.
wait_for() {
  local tries=$(($1 * 20))
  shift
  for ((i = 0; i < tries; ++i)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.05
  done
  fail "waited in vain for: $*"
}

# -- the cluster

stop_daemon() { # PID_FILE
  local pid state
  pid=$(cat "$1" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 100); do
    # A stopped daemon stays a zombie if process 1 does not reap it.
    state=$(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null) || return 0
    [ "${state:-Z}" = Z ] && return 0
    sleep 0.05
  done
}
stop_cluster() {
  scancel --user="$(id -un)" 2>/dev/null || true
  for daemon in slurmd slurmctld munged; do stop_daemon "$dir/run/$daemon.pid"; done
  rm -rf "$dir"
}
trap stop_cluster EXIT

start_cluster() {
  local port=$((20000 + RANDOM % 20000))
  mkdir -p "$dir"/{key,state,spool,log,run}
  chmod 755 "$dir" "$dir/run"
  chmod 700 "$dir/key"
  head -c 64 /dev/urandom >"$dir/key/key"
  chmod 400 "$dir/key/key"
  munged --key-file="$dir/key/key" --socket="$dir/run/munge" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/key/log" --seed-file="$dir/key/seed"
  # cred_expire is the least time that a requeued job waits. config_overrides allows more tasks than cores.
  cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket=$dir/run/munge,cred_expire=5
CredType=cred/munge
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
RequeueExit=75
KillWait=10
MailProg=/bin/true
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  slurmctld -c -f "$SLURM_CONF"
  slurmd -f "$SLURM_CONF"
  wait_for 30 is_idle
}
is_idle() { [ "$(sinfo -h -o %T)" = idle ]; }

# -- the batch

# checkpoint NUMBER makes a copy of llama3_tied with other weights.
checkpoint() {
  mkdir -p "in/c $1"
  cp "$testdata"/llama3_tied/{config.json,model.safetensors} "in/c $1/"
  printf "\\x0$1" | dd of="in/c $1/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "in/c $1/model.safetensors") - 4))
}
# expect ID STATE ATTEMPTS checks the status of a task.
expect() {
  "$ferry" batch status "$plan" >table
  local found
  found=$(awk -v id="$1" '$2 == id {print $3, $4}' table)
  [ "$found" = "$2 $3" ] || fail "$1 is $found, not $2 $3"
}
has_ended() { [ -z "$(squeue -h -r -j "$1")" ]; }
submit() {
  local said
  said=$(bash submit.sh --time=10)
  array=$(sed 's/^arrays \([0-9]*\), report [0-9]*$/\1/' <<<"$said")
  report=$(sed 's/^.* report \([0-9]*\)$/\1/' <<<"$said")
}

mkdir "$dir/plans" && cd "$dir/plans"
plan="it's a plan.jsonl"
for i in 0 1 2 3 4 5 6 7; do checkpoint $i; done
truncate -s 1000 "in/c 3/model.safetensors"
"$ferry" batch plan in --out-dir out --quiet >"$plan"
# The tasks that are killed and requeued must run long enough for that, so they calibrate with many prompts.
slow='"args":["--program","static","--kv-dtype","u8","--calibrate","prompts.txt"]'
for _ in $(seq 600); do echo 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16; done >prompts.txt
sed -i '/"id":"c-[56]"/s/}$/,'"$slow"'}/' "$plan"
"$ferry" batch slurm "$plan" --report report.json >submit.sh
bash -n submit.sh

start_cluster
submit
wait_for 30 test -e "$plan.state/attempts/c-5/1/convert.json"
kill -9 "$(sed 's/.*"process":\([0-9]*\).*/\1/' "$plan.state/attempts/c-5/1/started.json")"
wait_for 30 test -e "$plan.state/attempts/c-6/1/convert.json"
scontrol requeue "${array}_6"
wait_for 90 has_ended "$array"
wait_for 30 has_ended "$report"
echo "job $array: $("$ferry" batch status "$plan" | tail -n 1)"
for i in 0 1 2 4 7; do expect "c-$i" done 1; done
expect c-3 failed 1
expect c-5 interrupted 1
expect c-6 done 2
[ "$("$ferry" batch status "$plan" --array-spec unfinished)" = 3,5 ] || fail "not 3,5"
for i in 3 5; do scontrol -o show job "${array}_$i" | grep -o 'ArrayTaskId=[^ ]*\|ExitCode=[^ ]*\|Restarts=[^ ]*\|JobState=[^ ]*' | paste -sd' '; done
scontrol -o show job "${array}_3" | grep -q 'ExitCode=3:0' || fail "c-3 has another exit code"
grep -q '"complete":false' report.json || fail "the report does not say that tasks are missing"
[ "$(grep -o '"class":"signal"' "$plan.state/attempts/c-6/1/result.json")" ] || fail "c-6 was not stopped"

submit
wait_for 90 has_ended "$array"
wait_for 30 has_ended "$report"
echo "job $array: $("$ferry" batch status "$plan" | tail -n 1)"
for i in 0 1 2 4 7; do expect "c-$i" done 1; done
expect c-3 failed 1
expect c-5 done 2
expect c-6 done 2

mkdir alone
for i in 0 1 2 4 7; do
  "$ferry" convert "in/c $i" -o "alone/c-$i" --quiet
  diff -r "alone/c-$i" "out/c-$i" || fail "c-$i differs from a plain conversion"
done
for i in 5 6; do
  "$ferry" convert "in/c $i" -o "alone/c-$i" --quiet --program static --kv-dtype u8 --calibrate prompts.txt
  diff -r "alone/c-$i" "out/c-$i" || fail "c-$i differs from a plain conversion"
done
[ -z "$(find out -maxdepth 1 -name '.*')" ] || fail "something is left in out"
echo "8 tasks under Slurm: all but the bad input done once, equal to plain conversions"
