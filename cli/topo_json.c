/* Makes the object of ferry topo --json. */
#include "bench/bench.h"
#include "cli/topo.h"
#include "host/cpu/matmul.h"

static json_t *caches_json(const struct topology *t)
{
	json_t *caches = json_array();

	for (int i = 0; i < TOPOLOGY_CACHE_LEVELS; i++)
		if (t->cache[i].count)
			json_array_append_new(
			        caches, json_pack("{s:i, s:I, s:i, s:i}", "level", i + 1, "bytes",
			                        (json_int_t)t->cache[i].bytes, "count", t->cache[i].count,
			                        "shared_threads", t->cache[i].shared_count));
	return caches;
}

static json_t *nodes_json(const struct topology *t)
{
	json_t *nodes = json_array();

	for (int i = 0; i < t->machine.node_count && i < TOPOLOGY_NODES_MAX; i++) {
		const struct topology_node *n = &t->node[i];
		json_t *node = json_pack("{s:i, s:i, s:i, s:i, s:i, s:I}", "node", n->os_index, "package",
		        n->package, "machine_cores", n->machine_core_count, "cores", n->core_count, "threads",
		        n->processor_count, "ram_bytes", (json_int_t)n->ram_bytes);

		json_object_set_new(node, "ram_free_bytes",
		        n->ram_free_bytes ? json_integer(n->ram_free_bytes) : json_null());
		json_array_append_new(nodes, node);
	}
	return nodes;
}

static json_t *devices_on_buses_json(const struct topo *t)
{
	json_t *devices = json_array();

	for (int i = 0; i < t->device_count; i++) {
		const struct topology_device *d = &t->devices[i];
		json_t *device = json_pack(
		        "{s:s, s:s, s:s}", "kind", d->kind, "name", d->name, "pci_bus_id", d->bus_id);

		json_object_set_new(device, "numa_node",
		        d->node < 0 ? json_null() : json_integer(t->machine.node[d->node].os_index));
		json_array_append_new(devices, device);
	}
	return devices;
}

static json_t *counts_json(const struct topology_counts *counts)
{
	return json_pack("{s:i, s:i, s:i, s:i}", "packages", counts->package_count, "numa_nodes",
	        counts->node_count, "cores", counts->core_count, "threads", counts->processor_count);
}

static json_t *ranks_json(const struct topology *t)
{
	static const char *const shares[] = {
	        [TOPOLOGY_SHARE_ALL] = "all",
	        [TOPOLOGY_SHARE_CUT] = "cut",
	        [TOPOLOGY_SHARE_NEAR] = "near",
	        [TOPOLOGY_SHARE_BOUND] = "bound",
	        [TOPOLOGY_SHARE_TOGETHER] = "together",
	};

	return json_pack("{s:i, s:i, s:s?, s:s, s:i}", "local_rank", t->ranks.rank, "local_size",
	        t->ranks.size, "said_by", t->ranks.said, "share", shares[t->share], "cores", t->core_count);
}

/* A limit, or null if there is none. */
static json_t *limit_json(int64_t bytes)
{
	return bytes > 0 ? json_integer(bytes) : json_null();
}

static json_t *products_json(enum dtype dtype)
{
	const struct matmul_choice *choice = matmul_choice(dtype);

	return json_pack("{s:s, s:s, s:b, s:s, s:s?}", "library", choice->library, "kernels", choice->kernels,
	        "widened", choice->widens, "why", choice->why, "warning",
	        choice->warning[0] ? choice->warning : NULL);
}

void topo_add_json(json_t *object, const struct topo *t)
{
	static const char *const pinnings[] = {
	        [POOL_PINNED_NOT] = "off",
	        [POOL_PINNED_TO_NODES] = "nodes",
	        [POOL_PINNED_TO_CORES] = "cores",
	};
	const struct topology *m = &t->machine;

	json_object_set_new(object, "processor", json_string(m->cpu_name));
	json_object_set_new(object, "synthetic", json_boolean(m->is_synthetic));
	json_object_set_new(object, "machine", counts_json(&m->machine));
	json_object_set_new(object, "allowed", counts_json(&m->allowed));
	json_object_set_new(object, "affinity_is_narrow", json_boolean(m->mask_is_narrow));
	json_object_set_new(object, "caches", caches_json(m));
	json_object_set_new(object, "numa_nodes", nodes_json(m));
	json_object_set_new(object, "bus_devices", devices_on_buses_json(t));
	json_object_set_new(object, "ranks", ranks_json(m));
	json_object_set_new(
	        object, "cpu_quota", m->cgroup.cpu_quota > 0 ? json_real(m->cgroup.cpu_quota) : json_null());
	json_object_set_new(object, "ram_bytes", json_integer(m->ram_bytes));
	json_object_set_new(object, "ram_available_bytes", json_integer(m->ram_available_bytes));
	json_object_set_new(object, "cgroup_memory_bytes", limit_json(m->cgroup.memory_bytes));
	json_object_set_new(
	        object, "memlock_bytes", m->memlock_bytes < 0 ? json_null() : json_integer(m->memlock_bytes));
	json_object_set_new(
	        object, "address_bytes", m->address_bytes < 0 ? json_null() : json_integer(m->address_bytes));
	json_object_set_new(object, "address_used_bytes", json_integer(m->address_used_bytes));
	json_object_set_new(object, "usable_bytes", json_integer(m->usable_bytes));
	json_object_set_new(object, "usable_why", json_string(m->usable_why));
	json_object_set_new(object, "threads", json_integer(m->thread_count));
	json_object_set_new(object, "threads_reason", json_string(m->thread_reason));
	json_object_set_new(object, "omp_num_threads",
	        m->omp_num_threads[0] ? json_string(m->omp_num_threads) : json_null());
	json_object_set_new(object, "pinning", json_string(pinnings[t->pinning]));
	json_object_set_new(object, "pinning_reason", json_string(t->pinning_why));
	json_object_set_new(object, "memory_may_be_bound", json_boolean(t->may_bind_memory));
	json_object_set_new(object, "huge_pages", json_string(m->huge_pages));
	json_object_set_new(object, "isa", json_string(t->isa));
	json_object_set_new(object, "products_fp32", products_json(DTYPE_F32));
	json_object_set_new(object, "products_bf16", products_json(DTYPE_BF16));
	json_object_set_new(object, "copy_bytes_per_s",
	        t->bandwidth.copy_bytes_per_s > 0 ? json_real(t->bandwidth.copy_bytes_per_s) : json_null());
	json_object_set_new(object, "bandwidth", bench_bandwidth_json(&t->bandwidth));
}
