/* Reports memory bandwidth by NUMA node. */
#include "bench/bandwidth.h"
#include "bench/bench.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>

static json_t *row_json(const struct bandwidth *b, int i)
{
	json_t *row =
	        json_pack("{s:i, s:i}", "threads_on_node", b->os_index[i], "threads", b->node_threads[i]);

	for (int j = 0; j < b->node_count; j++) {
		char key[32];

		snprintf(key, sizeof(key), "memory_%d_gbps", b->os_index[j]);
		json_object_set_new(row, key, json_real(b->between[i][j] * 1e-9));
	}
	return row;
}

json_t *bench_bandwidth_json(const struct bandwidth *b)
{
	json_t *object = json_pack("{s:i, s:i, s:f, s:f, s:b, s:I, s:I}", "threads", b->threads, "nodes",
	        b->node_count, "copy_gbps", b->copy_bytes_per_s * 1e-9, "rmw3_gbps",
	        b->rmw3_bytes_per_s * 1e-9, "bound", b->is_bound, "buffer_bytes", (json_int_t)b->buffer_bytes,
	        "huge_bytes", (json_int_t)b->huge_bytes);
	json_t *rows = json_array();

	for (int i = 0; i < b->node_count && b->is_bound; i++)
		json_array_append_new(rows, row_json(b, i));
	json_object_set_new(object, "between_nodes", rows);
	return object;
}

int bench_topo(json_t **result, const struct bench_args *args)
{
	struct topology *t = mem_alloc(1, sizeof(*t));
	struct bandwidth b;
	int rc = t ? topology_read(t) : ERR_NOMEM;

	if (!rc)
		rc = bandwidth_measure(&b, t, args->threads, args->count > 0 ? (double)args->count : 4);
	mem_free(t);
	if (rc)
		return rc;
	*result = bench_bandwidth_json(&b);
	return *result ? 0 : err_set(ERR_NOMEM, "out of memory for a benchmark's result");
}
