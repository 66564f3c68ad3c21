/* Logs the pages and NUMA nodes of the store. */
#include "train/memory_report.h"

#include "base/log.h"
#include "base/quantity.h"
#include "host/pool.h"

#include <inttypes.h>

static double percent(int64_t part, int64_t whole)
{
	return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void node_add(struct str *text, const struct store_placement *p)
{
	const struct numa_found *f = &p->found;

	str_printf(text, "%snode %d ", text->len_bytes ? "; " : "", p->os_index);
	quantity_bytes(text, p->bytes);
	str_printf(text, ", %.1f %% there", percent(f->right_bytes, p->bytes));
	if (f->untold_bytes)
		str_printf(text, ", %.1f %% unknown to the system", percent(f->untold_bytes, p->bytes));
	if (f->absent_bytes)
		str_printf(text, ", %.1f %% never touched", percent(f->absent_bytes, p->bytes));
}

static void nodes_report(const struct engine *engine, const struct pool *pool)
{
	struct store_placement nodes[POOL_NODES_MAX];
	int count = store_get_placement(engine_store(engine), nodes, POOL_NODES_MAX);
	int64_t near_count = 0, stolen_count = 0, right_bytes = 0, bytes = 0;
	struct str text = {0};

	for (int i = 0; i < count; i++) {
		int64_t near, stolen;

		node_add(&text, &nodes[i]);
		pool_get_placed(pool, i, &near, &stolen);
		near_count += near;
		stolen_count += stolen;
	}
	if (text.data)
		log_info("weights and optimizer state by NUMA node: %s; %.1f %% of updates by threads of "
		         "another node",
		        text.data, percent(stolen_count, near_count + stolen_count));
	str_free(&text);
	count = staging_get_placement(engine_staging(engine), nodes, POOL_NODES_MAX);
	for (int i = 0; i < count; i++) {
		right_bytes += nodes[i].found.right_bytes;
		bytes += nodes[i].bytes;
	}
	if (bytes)
		log_info("returned gradients: %.1f %% on the node that updates from them",
		        percent(right_bytes, bytes));
}

void memory_report(const struct engine *engine, const struct pool *pool)
{
	const struct store *store = engine_store(engine);
	int64_t bytes = 0, huge_bytes = 0;
	struct str text = {0};

	if (store)
		store_get_pages(store, &bytes, &huge_bytes);
	if (!bytes)
		return;
	quantity_bytes(&text, bytes);
	if (text.data && huge_bytes >= 0)
		log_info("weights, gradients and optimizer state: %s of host memory, %.0f %% in huge pages",
		        text.data, percent(huge_bytes, bytes));
	str_free(&text);
	nodes_report(engine, pool);
}
