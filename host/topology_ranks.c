/* Sharing cores among the ranks of a host. */
#include "host/topology.h"

#include "comm/world.h"
#include "host/topology_inner.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* -1: not set, or no number. Slurm writes "4(x2)" for four tasks on each of two machines. */
static int read_count(const char *name)
{
	const char *text = name ? getenv(name) : NULL;
	char *end;
	long value;

	if (!text || !isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	value = strtol(text, &end, 10);
	return errno || value > INT_MAX || (*end && *end != '(') ? -1 : (int)value;
}

void topology_ranks_find(struct topology_ranks *ranks)
{
	/* who stands first is nearer to the process: srun and mpirun inside of one Slurm job, torchrun
	 * inside of either */
	static const struct {
		const char *rank, *size;
	} launchers[] = {
	        {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	        {"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
	        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
	        {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
	        {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}, /* in batch scripts too: below */
	};
	const struct world *world = world_self();

	*ranks = (struct topology_ranks){.size = 1};
	if (world->size > 1) {
		*ranks = (struct topology_ranks){world->local_rank, world->local_size, "MPI"};
		return;
	}
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		int rank = read_count(launchers[i].rank), size = read_count(launchers[i].size);

		if (rank < 0 || size <= rank)
			continue;
		if (!strcmp(launchers[i].size, "SLURM_NTASKS_PER_NODE") && !getenv("SLURM_STEP_ID"))
			continue; /* a batch script runs once, whatever number of tasks it asked for */
		*ranks = (struct topology_ranks){.rank = rank, .size = size, .said = launchers[i].rank};
		return;
	}
}

/* Of `count` cores, ranks in order take runs that differ by one core at most. */
void topology_share_cores(struct topology *t, int available_core_count)
{
	int count = t->core_count, size = t->ranks.size, rank = t->ranks.rank, first, end;

	t->share = TOPOLOGY_SHARE_ALL;
	if (size == 1)
		return;
	if (t->mask_is_narrow) {
		/* ranks that are spread evenly over masks of this size */
		int together =
		        (int)(((int64_t)size * count + available_core_count / 2) / available_core_count);

		t->share = together > 1 ? TOPOLOGY_SHARE_TOGETHER : TOPOLOGY_SHARE_BOUND;
		t->thread_count = together > 1 ? count / together : count;
	} else if (count < size) {
		t->share = TOPOLOGY_SHARE_TOGETHER;
		t->thread_count = 1;
	} else {
		t->share = TOPOLOGY_SHARE_CUT;
		first = (int)((int64_t)count * rank / size);
		end = (int)((int64_t)count * (rank + 1) / size);
		t->core_count = t->thread_count = end - first;
		for (int i = first; i < end; i++)
			t->core[i - first] = t->core[i];
	}
	if (t->thread_count < 1)
		t->thread_count = 1;
}
