/* The environment variables in which mpirun, srun, ferry and others describe a job. */
#include "comm/launch.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

/* A launcher and its variables. local_ranks lists the ranks of this host, separated by commas. job has the
 * job's number. An earlier row is nearer to the process: ferry runs inside any other, torchrun inside mpirun
 * or srun, mpirun inside a job of Slurm. */
static const struct words {
	const char *program;
	enum { JOINED, FOREIGN } kind;
	const char *size, *rank, *local_size, *local_rank, *local_ranks, *job[3];
} launchers[] = {
        {"ferry", JOINED, LOCAL_JOB_SIZE, LOCAL_JOB_RANK, LOCAL_JOB_SIZE, LOCAL_JOB_RANK, NULL,
                {LOCAL_JOB_KEY}},
        {"torchrun", FOREIGN, "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK", NULL, {NULL}},
        {"mpirun", JOINED, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK", NULL,
                {"PMIX_NAMESPACE", "PMIX_SERVER_URI2", "OMPI_MCA_orte_precondition_transports"}},
        {"mpirun", FOREIGN, NULL, NULL, "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", NULL,
                {NULL}},
        {"mpiexec", JOINED, "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", NULL, {NULL}},
        {"mpiexec", FOREIGN, NULL, NULL, "PALS_LOCAL_SIZE", "PALS_LOCAL_RANKID", NULL, {NULL}},
        {"srun", JOINED, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID",
                "SLURM_GTIDS", {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
        /* batch scripts, which run once, have these too, but no step */
        {"srun", FOREIGN, NULL, NULL, "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID", NULL, {"SLURM_STEP_ID"}},
};
enum { LAUNCHER_COUNT = sizeof(launchers) / sizeof(*launchers) };

/* -1: not set, or no number. Slurm writes "4(x2)" for four tasks on each of two machines. */
static int number_of(const char *name)
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

static int commas_count(const char *name)
{
	const char *text = name ? getenv(name) : NULL;
	int count = 0;

	for (; text && *text; text++)
		count += *text == ',';
	return count;
}

/* FNV-1a of the values, each with an end mark. */
static uint64_t key_add(uint64_t key, const char *text)
{
	for (; *text; text++)
		key = (key ^ (unsigned char)*text) * 0x100000001b3;
	return (key ^ 0xff) * 0x100000001b3;
}

static int64_t job_key(const struct words *w)
{
	uint64_t key = 0xcbf29ce484222325;

	if (!w->job[0] || !getenv(w->job[0]) || (w->job[1] && !getenv(w->job[1])))
		return 0;
	for (int i = 0; i < 3 && w->job[i]; i++) {
		const char *text = getenv(w->job[i]);

		key = key_add(key, text ? text : "");
	}
	return (int64_t)(key >> 1 | 1);
}

static int ranks_of_host(const struct words *w)
{
	int count = number_of(w->local_size);

	if (w->local_ranks && getenv(w->local_ranks))
		return commas_count(w->local_ranks) + 1;
	return count > 0 ? count : 0;
}

static void launch_of(struct launch *launch, const struct words *w)
{
	int size = number_of(w->size), rank = number_of(w->rank);

	*launch = (struct launch){.rank = rank,
	        .size = size,
	        .is_local = w == launchers,
	        .heart_fd = w == launchers ? number_of(LOCAL_JOB_HEART) : -1,
	        .is_foreign = w->kind == FOREIGN,
	        .program = w->program,
	        .said = w->size};
	if (rank >= 0 && rank < size) {
		launch->local_size = ranks_of_host(w);
		launch->key = launch->local_size ? job_key(w) : 0;
	}
}

/* Finds a launcher of this kind that started several processes. Failing that, finds one that started this
 * process alone, unless one is known already. */
static void read_kind(struct launch *launch, int kind)
{
	for (int i = 0; i < LAUNCHER_COUNT && launch->size == 1; i++) {
		const struct words *w = &launchers[i];
		int size = number_of(w->size);

		if ((int)w->kind != kind || size < 1 || (size == 1 && launch->program) ||
		        (kind == FOREIGN && number_of(w->rank) < 0))
			continue;
		launch_of(launch, w);
	}
}

void launch_read(struct launch *launch)
{
	*launch = (struct launch){.size = 1, .heart_fd = -1};
	read_kind(launch, JOINED);
}

/* Scripts of other programs set torchrun's variables under mpirun and srun too, so those come first. */
void launch_read_any(struct launch *launch)
{
	launch_read(launch);
	read_kind(launch, FOREIGN);
}

void launch_read_local(struct launch_local *local)
{
	*local = (struct launch_local){.size = 1};
	for (int i = 0; i < LAUNCHER_COUNT; i++) {
		const struct words *w = &launchers[i];
		int rank = number_of(w->local_rank), size = number_of(w->local_size);

		if (rank < 0 || size <= rank || (!w->size && w->job[0] && !getenv(w->job[0])))
			continue;
		*local = (struct launch_local){rank, size, w->local_rank};
		return;
	}
}
