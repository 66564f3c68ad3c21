/* What mpirun, srun or ferry says of a job in the environment. */
#include "comm/launch.h"

#include <stddef.h>
#include <stdlib.h>

/* A launcher, and what it sets; where it numbers jobs too. local_ranks: the ranks of this host, by commas. */
static const struct words {
	const char *program, *size, *rank, *local_size, *local_ranks, *job[3];
} launchers[] = {
        {"ferry", LOCAL_JOB_SIZE, LOCAL_JOB_RANK, LOCAL_JOB_SIZE, NULL, {LOCAL_JOB_KEY}}, /* in any other */
        {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL,
                {"PMIX_NAMESPACE", "PMIX_SERVER_URI2", "OMPI_MCA_orte_precondition_transports"}},
        {"mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", NULL, {NULL}},
        {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, "SLURM_GTIDS",
                {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};
enum { LAUNCHER_COUNT = sizeof(launchers) / sizeof(*launchers) };

static int number_of(const char *name, int absent)
{
	const char *text = name ? getenv(name) : NULL;
	long number = text ? strtol(text, NULL, 10) : absent;

	return number < 0 ? absent : number < INT32_MAX ? (int)number : INT32_MAX;
}

static int commas_count(const char *name)
{
	const char *text = name ? getenv(name) : NULL;
	int count = 0;

	for (; text && *text; text++)
		count += *text == ',';
	return count;
}

/* FNV-1a of the values, each with its end. */
static const uint64_t key_basis = 0xcbf29ce484222325;

static uint64_t key_add(uint64_t key, const char *text)
{
	for (; *text; text++)
		key = (key ^ (unsigned char)*text) * 0x100000001b3;
	return (key ^ 0xff) * 0x100000001b3;
}

int64_t launch_local_key(const char *job)
{
	return (int64_t)(key_add(key_basis, job) >> 1 | 1);
}

static int64_t job_key(const struct words *w)
{
	uint64_t key = key_basis;

	if (!w->job[0] || !getenv(w->job[0]) || (w->job[1] && !getenv(w->job[1])))
		return 0;
	for (int i = 0; i < 3 && w->job[i]; i++) {
		const char *text = getenv(w->job[i]);

		key = key_add(key, text ? text : "");
	}
	return (int64_t)(key >> 1 | 1);
}

void launch_read(struct launch *launch)
{
	*launch = (struct launch){.size = 1};
	for (int i = 0; i < LAUNCHER_COUNT; i++) {
		const struct words *w = &launchers[i];
		int size = number_of(w->size, 1), rank = number_of(w->rank, -1);

		if (size <= 1)
			continue;
		*launch = (struct launch){
		        .rank = rank, .size = size, .program = w->program, .is_local = i == 0};
		if (rank >= 0 && rank < size) {
			launch->local_size = w->local_ranks && getenv(w->local_ranks)
			                             ? commas_count(w->local_ranks) + 1
			                             : number_of(w->local_size, 0);
			launch->key = launch->local_size ? job_key(w) : 0;
		}
		return;
	}
}
