#!/bin/sh
# What ranks send between nodes, by the counters of a real link: two network namespaces stand for two hosts of two
# ranks, a veth pair joins them, and everything goes by TCP. Two runs that differ in steps alone; the difference is
# what the steps sent. Needs root, iproute2 and Open MPI. About half a minute.
#
#     sh scripts/traffic_netns.sh [FERRY] [STRATEGY ...]
set -eu

ferry=$(realpath "${1:-build/ferry}")
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD HYBRID_SHARD_ZERO2
a=ferry-a-$$ b=ferry-b-$$
dir=$(mktemp -d)
few=2 many=12

clean()
{
	ip netns del "$a" 2>/dev/null || :
	ip netns del "$b" 2>/dev/null || :
	rm -rf "$dir"
}
trap clean EXIT
trap 'exit 1' INT TERM

ip netns add "$a"
ip netns add "$b"
ip link add va$$ netns "$a" type veth peer name vb$$ netns "$b"
ip -n "$a" addr add 10.93.0.1/24 dev va$$
ip -n "$b" addr add 10.93.0.2/24 dev vb$$
for n in "$a" "$b"; do ip -n "$n" link set lo up; done
ip -n "$a" link set va$$ up
ip -n "$b" link set vb$$ up

cat >"$dir/config.json" <<END
{"model_type": "llama", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "tie_word_embeddings": false}
END
i=0
while [ $i -lt 64 ]; do
	echo '{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}'
	i=$((i + 1))
done >"$dir/rows.jsonl"
printf 'name: host\ngpus: 0\nhost:\n  memory: 16GiB\n  memory_gbps: 40\n  gflops: 100\n' >"$dir/host.yaml"

# mpirun's way to the other host: a namespace, with a name of its own
cat >"$dir/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec ip netns exec $b unshare -u sh -c "hostname ferry-b; \$*"
END
chmod +x "$dir/agent"

run()
{
	ip netns exec "$a" unshare -u sh -c 'hostname ferry-a; exec "$@"' - \
		env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		mpirun --host 10.93.0.1:2,10.93.0.2:2 --map-by slot --oversubscribe --bind-to none \
		--mca plm rsh --mca plm_rsh_agent "$dir/agent" --mca pml ob1 --mca btl tcp,self \
		--mca btl_tcp_if_include 10.93.0.0/24 --mca oob_tcp_if_include 10.93.0.0/24 \
		"$ferry" train "model=$dir" "data=$dir/rows.jsonl" data_format=tokens init_weights=random \
		"output_dir=$dir/out" overwrite_output_dir=on ranks_per_node=2 threads=1 save_steps=0 \
		"sharding_strategy=$1" "max_steps=$2" num_train_epochs=9 >"$dir/said" 2>&1 || {
		cat "$dir/said" >&2
		exit 1
	}
}

# Bytes that both ends of the link have sent.
sent()
{
	x=$(ip netns exec "$a" cat /sys/class/net/va$$/statistics/tx_bytes)
	y=$(ip netns exec "$b" cat /sys/class/net/vb$$/statistics/tx_bytes)
	echo $((x + y))
}

echo "bytes between the nodes in a step, of all ranks: counted by train, planned, and sent by the link"
for strategy in "$@"; do
	t0=$(sent)
	run "$strategy" $few
	t1=$(sent)
	run "$strategy" $many
	t2=$(sent)
	link=$(((t2 - t1 - (t1 - t0)) / (many - few)))
	counted=$(sed -n 's/.*within nodes and \([0-9]*\) between nodes.*/\1/p' "$dir/said")
	planned=$("$ferry" plan "model=$dir" "machine=$dir/host.yaml" world_size=4 ranks_per_node=2 max_length=12 \
		"sharding_strategy=$strategy" --json | sed -n 's/.*"network_bytes": *\([0-9]*\).*/\1/p')
	echo "$strategy counted $counted planned $((4 * planned)) link $link"
	# headers of TCP, IP and Ethernet and Open MPI's own: less than 5%, and what is agreed on each step
	[ "$counted" -eq $((4 * planned)) ]
	[ "$link" -ge "$counted" ]
	[ "$link" -le $((counted + counted / 20 + 65536)) ]
done
