/* Remembers the loads of named work. */
#include "device/meta/meta_memory.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

struct entry {
	uint64_t name;
	int64_t first, count; /* of the loads; count < 0: free place */
	struct meta_tally tally;
	int64_t first_reach;
	int base_count;
};

struct meta_memory {
	struct entry *table; /* open addressing; at most half full */
	int64_t table_size, entry_count;
	struct meta_load *loads;
	int64_t load_count, load_cap;
	int64_t *reach; /* of all entries */
	int64_t reach_count, reach_cap;
	const dev_addr *bases; /* of the open entry */
	int is_open, is_full;  /* is_full: no memory for the loads of the open entry */
	struct entry open;
};

enum { FIRST_SIZE = 1024 }; /* a power of two */

static struct entry *table_open(int64_t size)
{
	struct entry *table = mem_alloc((size_t)size, sizeof(*table));

	for (int64_t i = 0; table && i < size; i++)
		table[i].count = -1;
	return table;
}

int meta_memory_open(struct meta_memory **memory)
{
	struct meta_memory *m = mem_alloc(1, sizeof(*m));

	if (m)
		m->table = table_open(FIRST_SIZE);
	if (!m || !m->table) {
		mem_free(m);
		return ERR_NOMEM;
	}
	m->table_size = FIRST_SIZE;
	*memory = m;
	return 0;
}

void meta_memory_close(struct meta_memory *m)
{
	if (!m)
		return;
	mem_free(m->table);
	mem_free(m->loads);
	mem_free(m->reach);
	mem_free(m);
}

/* The place of the name, or the free one where it belongs. */
static struct entry *place_of(struct entry *table, int64_t size, uint64_t name)
{
	uint64_t mask = (uint64_t)size - 1, at = name & mask;

	while (table[at].count >= 0 && table[at].name != name)
		at = (at + 1) & mask;
	return &table[at];
}

int meta_memory_find(const struct meta_memory *m, uint64_t name, struct meta_known *known)
{
	const struct entry *e = place_of(m->table, m->table_size, name);

	if (e->count < 0)
		return 0;
	*known = (struct meta_known){.loads = m->loads + e->first,
	        .count = e->count,
	        .tally = e->tally,
	        .reach = m->reach + e->first_reach,
	        .base_count = e->base_count};
	return 1;
}

int meta_memory_begin(struct meta_memory *m, uint64_t name, const struct meta_tally *tally,
        const dev_addr *bases, int base_count)
{
	if (m->reach_count + base_count > m->reach_cap) {
		int64_t cap = 2 * m->reach_cap + FIRST_SIZE + base_count;
		int64_t *grown = mem_resize(m->reach, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		m->reach = grown;
		m->reach_cap = cap;
	}
	m->is_open = 1;
	m->is_full = 0;
	m->bases = bases;
	m->open = (struct entry){.name = name,
	        .first = m->load_count,
	        .tally = *tally,
	        .first_reach = m->reach_count,
	        .base_count = base_count};
	for (int i = 0; i < base_count; i++)
		m->reach[m->reach_count++] = 0;
	return 0;
}

/* What an op uses lies behind the last base before it. */
void meta_memory_touch(struct meta_memory *m, const struct op *op)
{
	struct op_access list[OP_ACCESS_MAX];
	int count = m->is_open ? op_access_list(op, list) : 0;

	for (int a = 0; a < count; a++) {
		int at = -1;

		for (int i = 0; i < m->open.base_count; i++)
			if (m->bases[i].value <= list[a].base.value &&
			        (at < 0 || m->bases[i].value > m->bases[at].value))
				at = i;
		if (at >= 0) {
			int64_t *reach = &m->reach[m->open.first_reach + at];

			*reach = max_i64(
			        *reach, (int64_t)(list[a].base.value - m->bases[at].value) + list[a].bytes);
		}
	}
}

/* Joins loads that use nothing shared, as the clock does. */
void meta_memory_add(struct meta_memory *m, const struct meta_load *load)
{
	struct meta_load *last = m->load_count > m->open.first ? &m->loads[m->load_count - 1] : NULL;
	int shares = 0;

	if (!m->is_open || m->is_full || !load->alone_ns)
		return;
	for (int r = 0; r < META_SHARED_COUNT; r++)
		shares |= load->share[r] != 0 || (last && last->share[r] != 0);
	if (last && !shares) {
		last->alone_ns += load->alone_ns;
		return;
	}
	if (m->load_count == m->load_cap) {
		int64_t cap = m->load_cap ? 2 * m->load_cap : FIRST_SIZE;
		struct meta_load *grown = mem_resize(m->loads, (size_t)cap, sizeof(*grown));

		m->is_full = !grown;
		if (!grown)
			return;
		m->loads = grown;
		m->load_cap = cap;
	}
	m->loads[m->load_count++] = *load;
}

static int table_grow(struct meta_memory *m)
{
	int64_t size = 2 * m->table_size;
	struct entry *table = table_open(size);

	if (!table)
		return ERR_NOMEM;
	for (int64_t i = 0; i < m->table_size; i++)
		if (m->table[i].count >= 0)
			*place_of(table, size, m->table[i].name) = m->table[i];
	mem_free(m->table);
	m->table = table;
	m->table_size = size;
	return 0;
}

int meta_memory_end(struct meta_memory *m, const struct meta_tally *tally)
{
	m->is_open = 0;
	if (m->is_full || (2 * m->entry_count >= m->table_size && table_grow(m)))
		return ERR_NOMEM;
	m->open.count = m->load_count - m->open.first;
	m->open.tally.flops = tally->flops - m->open.tally.flops;
	m->open.tally.bytes = tally->bytes - m->open.tally.bytes;
	m->open.tally.ops = tally->ops - m->open.tally.ops;
	*place_of(m->table, m->table_size, m->open.name) = m->open;
	m->entry_count++;
	return 0;
}
