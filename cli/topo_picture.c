/* Draws the machine and prints the findings of ferry topo. */
#include "cli/topo.h"

#include "base/quantity.h"
#include "host/cpu/matmul.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the tree ---- */

/* "32 KiB", in one of a few static buffers. */
static const char *bytes_text(int64_t bytes)
{
	static char text[8][32];
	static int next;
	char *to = text[next++ % 8];
	struct str s = {0};

	quantity_bytes(&s, bytes);
	snprintf(to, sizeof(text[0]), "%s", s.data ? s.data : "?");
	str_free(&s);
	return to;
}

static const char *plural(int count)
{
	return count == 1 ? "" : "s";
}

/* Describes a device. GPUs have CUDA's number if CUDA knows them. */
static void device_text(char *text, size_t text_bytes, const struct topo *t, const struct topology_device *d)
{
	size_t i;
	json_t *gpu;

	snprintf(text, text_bytes, "%s %s at %s", d->kind, d->name, d->bus_id);
	json_array_foreach(t->gpus, i, gpu)
	{
		const char *bus_id = json_string_value(json_object_get(gpu, "pci_bus_id"));
		size_t a = bus_id ? strlen(bus_id) : 0, b = strlen(d->bus_id);

		/* CUDA may write the domain with eight digits, the system writes four */
		if (a && !strcasecmp(bus_id + (a > b ? a - b : 0), d->bus_id))
			snprintf(text, text_bytes, "GPU %d, %s at %s", (int)i,
			        json_string_value(json_object_get(gpu, "name")), d->bus_id);
	}
}

static int devices_on(const struct topo *t, int node)
{
	int count = 0;

	for (int i = 0; i < t->device_count; i++)
		count += t->devices[i].node == node;
	return count;
}

static void draw_devices(struct str *out, const struct topo *t, int node, const char *indent)
{
	int left = devices_on(t, node);

	for (int i = 0; i < t->device_count; i++)
		if (t->devices[i].node == node) {
			char text[256];

			device_text(text, sizeof(text), t, &t->devices[i]);
			str_printf(out, "%s%s %s\n", indent, --left ? "|--" : "`--", text);
		}
}

static void cache_text(struct str *out, const struct topology *t)
{
	int smt = t->machine.core_count ? t->machine.processor_count / t->machine.core_count : 1;

	for (int i = 0; i < TOPOLOGY_CACHE_LEVELS; i++) {
		const struct topology_cache *c = &t->cache[i];

		if (!c->count)
			continue;
		str_printf(out, "%sL%d %s", out->len_bytes ? ", " : "", i + 1, bytes_text(c->bytes));
		if (c->shared_count <= smt)
			str_add(out, " a core");
		else
			str_printf(out, " for %d cores", c->shared_count / (smt ? smt : 1));
	}
}

/* Cores of this rank on a node. */
static int own_cores(const struct topology *t, int node)
{
	int count = 0;

	for (int i = 0; i < t->core_count; i++)
		count += t->core[i].node == node;
	return count;
}

static void draw_node(struct str *out, const struct topo *t, int node, int is_last)
{
	const struct topology_node *n = &t->machine.node[node];
	const char *indent = is_last ? "       " : "   |   ";
	int devices = devices_on(t, node), own = own_cores(&t->machine, node);
	struct str caches = {0};

	str_printf(out, "   %s NUMA node %d: %s of memory", is_last ? "`--" : "|--", n->os_index,
	        bytes_text(n->ram_bytes));
	if (n->ram_free_bytes)
		str_printf(out, " (%s free)", bytes_text(n->ram_free_bytes));
	str_add_char(out, '\n');
	str_printf(out, "%s%s %d core%s", indent, n->machine_core_count || devices ? "|--" : "`--",
	        n->machine_core_count, plural(n->machine_core_count));
	if (n->core_count != n->machine_core_count)
		str_printf(out, ", %d allowed", n->core_count);
	if (n->processor_count != n->core_count)
		str_printf(out, " with %d hardware threads", n->processor_count);
	if (own != n->core_count)
		str_printf(out, ", %d for this rank", own);
	str_add_char(out, '\n');
	cache_text(&caches, &t->machine);
	if (n->machine_core_count)
		str_printf(out, "%s%s caches: %s\n", indent, devices ? "|--" : "`--",
		        caches.data ? caches.data : "not known");
	str_free(&caches);
	draw_devices(out, t, node, indent);
}

void topo_draw(struct str *out, const struct topo *t)
{
	const struct topology *m = &t->machine;
	int nodes = m->machine.node_count < TOPOLOGY_NODES_MAX ? m->machine.node_count : TOPOLOGY_NODES_MAX;
	int packages = m->machine.package_count > 0 ? m->machine.package_count : 1;

	str_printf(out, "%s\n%d package%s, %d core%s, %d hardware thread%s, %s of memory\n", m->cpu_name,
	        m->machine.package_count, plural(m->machine.package_count), m->machine.core_count,
	        plural(m->machine.core_count), m->machine.processor_count, plural(m->machine.processor_count),
	        bytes_text(m->ram_bytes));
	for (int p = 0; p < packages; p++) {
		int left = 0;

		for (int n = 0; n < nodes; n++)
			left += m->node[n].package == p;
		str_printf(out, "|\n+- package %d\n", p);
		for (int n = 0; n < nodes; n++)
			if (m->node[n].package == p)
				draw_node(out, t, n, --left == 0);
	}
	if (devices_on(t, -1))
		str_add(out, "|\n+- near no node\n");
	draw_devices(out, t, -1, "   ");
	str_add_char(out, '\n');
}

/* ---- limits and choices ---- */

static void tell_limits(struct str *out, const struct topology *t)
{
	str_printf(out, "%-22s %d of %d cores, %d hardware threads%s\n", "allowed here",
	        t->allowed.core_count, t->machine.core_count, t->allowed.processor_count,
	        t->mask_is_narrow                                         ? ", by the affinity mask"
	        : t->allowed.processor_count < t->machine.processor_count ? ", by the cpuset"
	                                                                  : "");
	if (t->ranks.said)
		str_printf(out, "%-22s %d of %d on this host (%s)\n", "local rank", t->ranks.rank,
		        t->ranks.size, t->ranks.said);
	if (t->cgroup.cpu_quota > 0)
		str_printf(out, "%-22s %.2f processors\n", "cgroup quota", t->cgroup.cpu_quota);
	if (t->cgroup.memory_bytes)
		str_printf(out, "%-22s %s, %s in use\n", "cgroup memory limit",
		        bytes_text(t->cgroup.memory_bytes), bytes_text(t->cgroup.memory_used_bytes));
	if (t->address_bytes >= 0)
		str_printf(out, "%-22s %s at most (ulimit -v), %s in use\n", "addresses",
		        bytes_text(t->address_bytes), bytes_text(t->address_used_bytes));
	str_printf(out, "%-22s %s of %s\n", "RAM available", bytes_text(t->ram_available_bytes),
	        bytes_text(t->ram_bytes));
	if (t->memlock_bytes < 0)
		str_printf(out, "%-22s no limit\n", "page-locked memory");
	else
		str_printf(out, "%-22s %s at most (ulimit -l)\n", "page-locked memory",
		        bytes_text(t->memlock_bytes));
}

static const char *const pinning_names[] = {
        [POOL_PINNED_NOT] = "off",
        [POOL_PINNED_TO_NODES] = "each thread to its node's cores",
        [POOL_PINNED_TO_CORES] = "each thread to a core of its own",
};

static void tell_huge_pages(struct str *out, const struct topo *t)
{
	const struct bandwidth *b = &t->bandwidth;

	str_printf(out, "%-22s ", "huge pages");
	if (!t->machine.huge_pages[0])
		str_add(out, "none: this kernel has no transparent ones");
	else if (!strcmp(t->machine.huge_pages, "never"))
		str_add(out, "none: transparent_hugepage/enabled is never");
	else
		str_printf(out, "requested (transparent_hugepage/enabled is %s)", t->machine.huge_pages);
	if (b->buffer_bytes && b->huge_bytes >= 0)
		str_printf(out, ", %.0f %% of %s given",
		        100.0 * (double)b->huge_bytes / (double)b->buffer_bytes, bytes_text(b->buffer_bytes));
	str_add_char(out, '\n');
}

static const char *placement_why(const struct topo *t)
{
	if (t->bandwidth.node_count < 2)
		return t->machine.machine.node_count < 2
		               ? "one NUMA node: nothing to place"
		               : "all on the NUMA node of the threads, as far as it has room";
	if (!t->may_bind_memory)
		return "not bound: the system forbids mbind (containers: add CAP_SYS_NICE)";
	return t->bandwidth.is_bound || !t->bandwidth.buffer_bytes
	               ? "each layer is spread over the nodes, and each node's threads update its part"
	               : "bound, but a node's memory is full or forbidden, so pages are elsewhere";
}

static void tell_products(struct str *out, const char *name, enum dtype dtype)
{
	const struct matmul_choice *choice = matmul_choice(dtype);

	str_printf(out, "%-22s %s (%s)%s: %s\n", name, choice->library, choice->kernels,
	        choice->widens ? ", widened to fp32" : "", choice->why);
	if (choice->warning[0])
		str_printf(out, "%-22s warning: %s\n", "", choice->warning);
}

static void tell_choices(struct str *out, const struct topo *t)
{
	const struct topology *m = &t->machine;

	str_printf(out, "%-22s %d: %s\n", "threads", m->thread_count, m->thread_reason);
	if (m->omp_num_threads[0])
		str_printf(out, "%-22s ignoring OMP_NUM_THREADS=%s; set threads=N\n", "", m->omp_num_threads);
	str_printf(out, "%-22s %s: %s\n", "pinning", pinning_names[t->pinning], t->pinning_why);
	str_printf(out, "%-22s %s\n", "memory by node", placement_why(t));
	tell_huge_pages(out, t);
	str_printf(out, "%-22s %s: the widest that the processor and this build support\n", "instruction set",
	        t->isa);
	tell_products(out, "products of fp32", DTYPE_F32);
	tell_products(out, "products of bf16", DTYPE_BF16);
	str_printf(out, "%-22s %s: %s\n", "host memory to use", bytes_text(m->usable_bytes), m->usable_why);
}

static void tell_matrix(struct str *out, const struct bandwidth *b)
{
	str_printf(out, "%-22s %-10s", "  copies, GB/s", "memory on");
	for (int j = 0; j < b->node_count; j++)
		str_printf(out, "  node %-3d", b->os_index[j]);
	str_add_char(out, '\n');
	for (int i = 0; i < b->node_count; i++) {
		str_printf(out, "  %2d threads on node %-3d%-9s", b->node_threads[i], b->os_index[i], "");
		for (int j = 0; j < b->node_count; j++)
			str_printf(out, "  %8.1f", b->between[i][j] * 1e-9);
		str_add_char(out, '\n');
	}
}

static void tell_bandwidth(struct str *out, const struct topo *t)
{
	const struct bandwidth *b = &t->bandwidth;

	if (!(b->copy_bytes_per_s > 0)) {
		str_printf(out, "%-22s not measured: %s\n", "memory bandwidth",
		        b->node_count > BANDWIDTH_NODES_MAX ? "too many nodes" : "too little memory is free");
		return;
	}
	str_printf(out,
	        "%-22s %.1f GB/s read and written by copies on %d threads; %.1f GB/s in place, three arrays "
	        "(RMWx3)\n",
	        "memory bandwidth", b->copy_bytes_per_s * 1e-9, b->threads, b->rmw3_bytes_per_s * 1e-9);
	if (t->machine.is_synthetic)
		str_printf(out, "%-22s measured on the real machine; the nodes are made up\n", "");
	if (b->node_count > 1 && b->is_bound)
		tell_matrix(out, b);
}

void topo_tell(struct str *out, const struct topo *t)
{
	tell_limits(out, &t->machine);
	str_add_char(out, '\n');
	tell_choices(out, t);
	tell_bandwidth(out, t);
}
