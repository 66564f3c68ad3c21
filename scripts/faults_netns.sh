#!/bin/sh
# What becomes of a job on two hosts when something happens to one of them: two network namespaces of two ranks
# each, with names, /tmp and /dev/shm of their own, joined by TCP. Each round starts a run, and after a while that
# the seed chooses a rank is killed or stopped, or all of the second host, or what the launcher left there, or the
# link goes down. The job must end with an error within its time, leave nothing running, and its newest checkpoint
# must verify and go on. Needs root, iproute2 and Open MPI; for srun slurm-wlm and munge, neither of them running.
#
#     sh scripts/faults_netns.sh [FERRY] [mpirun|srun] [ROUNDS] [SEED]
set -eu

ferry=$(realpath "${1:-build/ferry}") launcher=${2:-mpirun} rounds=${3:-1} seed=${4:-1}
watchdog=3
a=ferry-a-$$ b=ferry-b-$$
dir=$(mktemp -d /var/tmp/ferry-hosts-XXXXXX)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_base_help_aggregate=0
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=10.94.0.0/24
export OMPI_MCA_oob_tcp_if_include=10.94.0.0/24 SLURM_CONF="$dir/slurm.conf"
# mpirun asks other hosts that say nothing whether they are there, after 300 s otherwise
export OMPI_MCA_oob_tcp_keepalive_time=5 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3

# Processes of the job: those that work in its directory, on all hosts or on one.
job()
{
	for p in /proc/[0-9]*; do
		[ "$(readlink "$p/cwd" 2>/dev/null)" = "$dir/job" ] || continue
		case $(readlink "$p/exe") in
		"$ferry") kind=rank ;;
		*/sh | */bash | */dash) continue ;; # this one
		*/mpirun | */orterun | */srun) kind=launcher ;;
		*) kind=daemon ;;
		esac
		[ "$1" = all ] || [ "$1" = $kind ] || continue
		[ -z "${2:-}" ] || [ "$(readlink "$p/ns/net")" = "$(readlink "/proc/$(cat "$dir/$2.pid")/ns/net")" ] || continue
		echo "${p#/proc/}"
	done
}

clean()
{
	for p in $(job all) $(cat "$dir"/*.pid 2>/dev/null); do kill -9 "$p" 2>/dev/null || :; done
	ip netns del "$a" 2>/dev/null || :
	ip netns del "$b" 2>/dev/null || :
	ip link del "br$$" 2>/dev/null || :
	rm -rf "$dir"
}
trap clean EXIT
trap 'exit 1' INT TERM

# A namespace with a name and directories of its own, held by a process that sleeps.
host()
{
	ip netns add "$1"
	ip link add "v$2$$" type veth peer name eth0 netns "$1"
	ip link set "v$2$$" master "br$$" up
	ip -n "$1" link set lo up
	ip -n "$1" addr add "10.94.0.$2/24" dev eth0
	ip -n "$1" link set eth0 up
	ip netns exec "$1" unshare -um sh -c "hostname $1; mount -t tmpfs -o mode=1777 none /tmp
		mount -t tmpfs -o mode=1777 none /dev/shm; echo \$\$ >$dir/$1.pid; exec sleep 100000" >/dev/null 2>&1 &
	while [ ! -s "$dir/$1.pid" ]; do sleep 0.05; done
}

on() # HOST COMMAND...
{
	at=$(cat "$dir/$1.pid")
	shift
	nsenter -t "$at" -n -u -m --wd="$PWD" "$@"
}

ip link add "br$$" type bridge
ip addr add 10.94.0.1/24 dev "br$$"
ip link set "br$$" up
host "$a" 2
host "$b" 3
mkdir "$dir/job"

cat >"$dir/config.json" <<END
{"model_type": "llama", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "tie_word_embeddings": false}
END
i=0
while [ $i -lt 64 ]; do
	echo '{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}'
	i=$((i + 1))
done >"$dir/rows.jsonl"

# mpirun's way to the other host
cat >"$dir/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec nsenter -t $(cat "$dir/$b.pid") -n -u -m --wd=$dir/job sh -c "\$*"
END
chmod +x "$dir/agent"

slurm_start()
{
	mkdir -p "$dir/state" /run/munge
	chown munge: /run/munge
	[ -S /run/munge/munge.socket.2 ] || runuser -u munge -- munged --pid-file="/run/munge/munged.pid"
	cat >"$dir/slurm.conf" <<-END
		ClusterName=ferry
		SlurmctldHost=$(hostname)(10.94.0.1)
		SlurmUser=root
		SlurmdUser=root
		StateSaveLocation=$dir/state
		SlurmdSpoolDir=$dir/spool.%n
		SlurmctldLogFile=$dir/ctld.log
		SlurmdLogFile=$dir/slurmd.%n.log
		SlurmctldPidFile=$dir/ctld.pid
		SlurmdPidFile=$dir/slurmd.%n.pid
		SlurmdParameters=config_overrides
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		JobAcctGatherType=jobacct_gather/none
		ReturnToService=2
		KillWait=5
		SlurmdTimeout=10
		NodeName=$a NodeAddr=10.94.0.2 CPUs=4 State=UNKNOWN
		NodeName=$b NodeAddr=10.94.0.3 CPUs=4 State=UNKNOWN
		PartitionName=all Nodes=$a,$b Default=YES State=UP
	END
	echo CgroupPlugin=cgroup/v1 >"$dir/cgroup.conf" # asks for nothing that a namespace lacks
	slurmctld
	on "$a" slurmd -N "$a"
	on "$b" slurmd -N "$b"
	while [ "$(sinfo -h -t idle -o %D)" != 2 ]; do sleep 0.5; done
}

# MORE...: in the background, by an exec of the launcher; what it says in $dir/said
start()
(
	cd "$dir/job"
	set -- "$ferry" train "model=$dir" "data=$dir/rows.jsonl" data_format=tokens init_weights=random \
		"output_dir=$dir/out" ranks_per_node=2 threads=1 num_train_epochs=99999 watchdog_timeout=$watchdog \
		sharding_strategy=HYBRID_SHARD save_total_limit=2 compute_dtype=fp32 learning_rate=1e-3 "$@"
	if [ "$launcher" = srun ]; then
		exec srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 "$@"
	fi
	on "$a" mpirun --host 10.94.0.2:2,10.94.0.3:2 --map-by slot --oversubscribe --bind-to none \
		--mca plm rsh --mca plm_rsh_agent "$dir/agent" "$@"
)

fail()
{
	echo "$*" >&2
	cat "$dir/said" >&2
	exit 1
}

random() # LIMIT
{
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	echo $((seed / 65536 % $1)) >"$dir/random"
	read -r drawn <"$dir/random"
}

steps()
{
	cat "$dir/out/metrics.jsonl" 2>/dev/null | wc -l
}

now_ms()
{
	echo $(($(date +%s%N) / 1000000))
}

hit() # WHAT
{
	ranks=$(job rank "$b")
	random 2
	one=$(echo $ranks | cut -d' ' -f$((drawn + 1)))
	case $1 in
	kill-rank) kill -9 "$one" ;;
	stop-rank) kill -STOP "$one" ;;
	kill-ranks) kill -9 $ranks ;;
	stop-ranks) kill -STOP $ranks ;;
	kill-host) kill -9 $(job all "$b") ;;
	cut-link) ip link set v3$$ down ;;
	term-rank) kill -TERM "$one" ;;
	esac
}

round() # WHAT CODES LIMIT_MS
{
	rm -rf "$dir/out"
	start max_steps=100000 save_steps=5 >"$dir/said" 2>&1 &
	launched=$!
	random 20
	until [ "$(steps)" -gt $((8 + drawn)) ]; do
		kill -0 $launched 2>/dev/null || fail "$1: it ended too early"
		sleep 0.1
	done
	begin=$(now_ms)
	hit "$1"
	while [ -n "$(job rank)" ]; do sleep 0.05; done
	ranks_gone=$(($(now_ms) - begin))
	while [ -n "$(job all)" ] && [ $(($(now_ms) - begin)) -lt $(($3 + 5000)) ]; do sleep 0.05; done
	gone=$(($(now_ms) - begin)) code=0
	kill $(job launcher) 2>/dev/null || :
	wait $launched || code=$?
	ip link set v3$$ up
	said=$(sed -n 's/^ferry train: //p' "$dir/said" | head -1)
	echo "$launcher $1: exit $code, ranks gone after $ranks_gone ms, all after $gone ms: $said"
	[ $gone -le "$3" ] || echo "$launcher hung when all ranks had ended" # Open MPI 4.1's may: docs/results/reliability.md
	while [ -n "$(job launcher)" ] && [ $(($(now_ms) - begin)) -lt $(($3 + 9000)) ]; do sleep 0.05; done
	[ -z "$(job all)" ] || fail "$1: $(job all) are still there"
	[ $ranks_gone -le "$3" ] || fail "$1: it took longer than $3 ms"
	case " $2 " in *" $code "*) ;; *) fail "$1: exit $code" ;; esac
	newest=$(ls -d "$dir"/out/checkpoint-* | grep -v '[.]tmp' | sort | tail -1)
	"$ferry" verify "$newest" >/dev/null 2>&1 || fail "$1: $newest"
	at=$(expr "$newest" : '.*-0*\([1-9][0-9]*\)')
	[ "$launcher" = mpirun ] || until [ "$(sinfo -h -t idle -o %D)" = 2 ]; do sleep 0.2; done
	start resume_from_checkpoint=auto max_steps=$((at + 2)) save_steps=0 >"$dir/said" 2>&1 ||
		fail "$1: it does not go on"
}

[ "$launcher" = mpirun ] || slurm_start

# two hosts train as one does
start max_steps=6 save_steps=0 >"$dir/said" 2>&1 || fail "training"
grep -q "4 (2 on this host), HYBRID_SHARD" "$dir/said" || fail "the hosts are not told apart"
grep -q "^hosts    $a: 0 to 1, $b: 2 to 3\$" "$dir/said" || fail "the hosts are not named"
sed 's/.*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2/' "$dir/out/metrics.jsonl" >"$dir/two"
rm -rf "$dir/out"
(
	cd "$dir/job"
	on "$a" mpirun -n 4 --oversubscribe --bind-to none "$ferry" train "model=$dir" "data=$dir/rows.jsonl" \
		data_format=tokens init_weights=random "output_dir=$dir/out" ranks_per_node=2 threads=1 \
		num_train_epochs=99999 sharding_strategy=HYBRID_SHARD compute_dtype=fp32 learning_rate=1e-3 \
		max_steps=6 save_steps=0
) >"$dir/said" 2>&1 || fail "training on one host"
sed 's/.*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2/' "$dir/out/metrics.jsonl" | cmp - "$dir/two"
echo "$launcher: two hosts have the losses and norms of one, bit for bit"

# ends of what is seen on the spot, of what the watchdog finds, and of what the launcher itself waits for
near=8000 far=$((1000 * watchdog + 15000))
failed="1 134 137 139 143 205 243" # those of the launcher, too, which may crash where a link is cut
while [ "$rounds" -gt 0 ]; do
	round term-rank 3 $near
	round kill-rank "$failed" $near
	round stop-rank "$failed" $far
	round kill-ranks "$failed" $far
	round stop-ranks "$failed" $far
	round kill-host "$failed" $far
	round cut-link "$failed" 60000
	rounds=$((rounds - 1))
done
