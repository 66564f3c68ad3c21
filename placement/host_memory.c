/* What a run takes of host memory, and what it may take. */
#include "placement/host_memory.h"

#include "placement/ranks.h"

#include "base/err.h"
#include "checkpoint/block_writer.h"
#include "host/topology.h"

int64_t host_save_bytes(const struct engine_memory *memory)
{
	return memory->state_bytes ? block_writer_memory_bytes(memory->state_bytes) : 0;
}

int64_t host_need_bytes(const struct engine_memory *memory)
{
	return memory->store_bytes + memory->stage_bytes + host_save_bytes(memory);
}

/* What ranks of this host may take, and why. */
static int host_usable(int64_t *bytes, const char **why, const struct config *c, int ranks)
{
	struct topology t;
	int threads, err = topology_read(&t);

	if (err)
		return err;
	threads = c->verb == VERB_PLAN ? (t.thread_count + ranks - 1) / ranks : t.thread_count;
	topology_find_usable(&t, c->threads > 0 ? (int)c->threads : threads, ranks);
	*bytes = t.usable_bytes;
	*why = t.usable_why;
	return 0;
}

int host_memory_find(struct host_memory *host, const struct config *c, const struct engine_memory *memory,
        int64_t device_bytes, const struct machine *machine)
{
	int ranks = ranks_of_host(c, machine, world_self()), err = 0;

	host->limit_why = NULL;
	host->need_bytes = host_need_bytes(memory) + device_bytes;
	host->limit_bytes = c->ram_budget_bytes;
	host->need_bytes *= ranks;
	if (machine && c->ram_budget_bytes == CONFIG_AUTO)
		host->limit_bytes = machine->host_memory_bytes - machine->host_reserve_bytes;
	else if (c->ram_budget_bytes == CONFIG_AUTO)
		err = host_usable(&host->limit_bytes, &host->limit_why, c, ranks);
	host->fits = !err && host->need_bytes <= host->limit_bytes;
	return err;
}

int64_t host_limit_bytes(const struct config *c, const struct machine *machine, int ranks_here)
{
	const char *why;
	int64_t bytes = 0;

	if (c->ram_budget_bytes != CONFIG_AUTO)
		return c->ram_budget_bytes / ranks_here;
	if (machine)
		return (machine->host_memory_bytes - machine->host_reserve_bytes) / ranks_here;
	return host_usable(&bytes, &why, c, ranks_here) ? 0 : (bytes - bytes / 64) / ranks_here;
}
