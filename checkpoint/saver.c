/* Saves on a separate thread, beside the steps. */
#include "checkpoint/saver.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NICER = 10 }; /* nice value above that of computing threads */

struct checkpoint_saver {
	struct checkpoint_saving *saving;
	pthread_t thread;
	enum phase { PHASE_WRITE, PHASE_VERIFY, PHASE_DONE } phase;
	int is_alone;            /* a world of one */
	int is_running, is_late; /* is_late: there is no thread, so `join` does its work */
	atomic_int is_idle;      /* 1: the thread has finished */
	struct err err;
	char *path;
};

/* Does all parts after write, with one rank. */
static int run_alone(struct checkpoint_saver *s)
{
	int err = checkpoint_saving_commit(s->saving);

	if (err)
		return err;
	(void)!checkpoint_saving_verify(s->saving); /* rotate returns its error */
	return checkpoint_saving_rotate(s->saving, &s->path);
}

static void *run(void *context)
{
	struct checkpoint_saver *s = context;
	int err = 0;

	setpriority(PRIO_PROCESS, (id_t)gettid(), getpriority(PRIO_PROCESS, (id_t)gettid()) + NICER);
	if (s->phase == PHASE_WRITE)
		(void)!checkpoint_saving_write(s->saving); /* commit returns its error */
	else
		(void)!checkpoint_saving_verify(s->saving);
	if (s->is_alone)
		err = run_alone(s);
	if (err)
		err_take(&s->err, err);
	atomic_store(&s->is_idle, 1);
	return NULL;
}

/* Starts the thread. If the system gives none, `join` does the work, not this function, because reading may
 * wait for work that the caller has yet to do. */
static void begin(struct checkpoint_saver *s, enum phase phase)
{
	s->phase = phase;
	atomic_store(&s->is_idle, 0);
	s->is_running = !thread_start(&s->thread, run, s);
	s->is_late = !s->is_running;
	if (s->is_late)
		atomic_store(&s->is_idle, 1);
}

static void join(struct checkpoint_saver *s)
{
	if (s->is_running)
		pthread_join(s->thread, NULL);
	s->is_running = 0;
	if (s->is_late)
		run(s);
	s->is_late = 0;
}

int checkpoint_saver_start(struct checkpoint_saver **out, const struct checkpoint_save *save)
{
	struct checkpoint_saver *s = mem_alloc(1, sizeof(*s));
	const struct checkpoint_world *world = &save->world;
	int err = world->agree ? world->agree(world->context, s ? 0 : ERR_NOMEM) : s ? 0 : ERR_NOMEM;

	*out = NULL;
	if (!err)
		err = checkpoint_saving_open(&s->saving, save);
	if (err) {
		mem_free(s);
		return err;
	}
	s->is_alone = save->world.size <= 1;
	begin(s, PHASE_WRITE);
	*out = s;
	return 0;
}

int checkpoint_saver_is_ready(const struct checkpoint_saver *s)
{
	return atomic_load(&s->is_idle);
}

/* Runs the collective part after a phase, and begins the next phase. */
static int next_phase(struct checkpoint_saver *s)
{
	enum phase phase = s->phase;
	int err;

	s->phase = PHASE_DONE;
	if (s->is_alone)
		return err_give(&s->err);
	if (phase == PHASE_VERIFY)
		return checkpoint_saving_rotate(s->saving, &s->path);
	err = checkpoint_saving_commit(s->saving);
	if (err)
		return err;
	begin(s, PHASE_VERIFY);
	return 0;
}

int checkpoint_saver_advance(struct checkpoint_saver *s, enum checkpoint_saver_state *state)
{
	int err = 0;

	if (s->phase != PHASE_DONE) {
		join(s);
		err = next_phase(s);
	}
	if (err)
		err_take(&s->err, err);
	*state = s->phase == PHASE_DONE ? CHECKPOINT_SAVER_DONE : CHECKPOINT_SAVER_RUNS;
	return err;
}

int checkpoint_saver_finish(struct checkpoint_saver *s, char **path)
{
	enum checkpoint_saver_state state = CHECKPOINT_SAVER_RUNS;
	int err;

	while (state != CHECKPOINT_SAVER_DONE)
		(void)!checkpoint_saver_advance(s, &state);
	err = err_give(&s->err);
	if (path) {
		*path = s->path;
		s->path = NULL;
	}
	checkpoint_saver_abandon(s);
	return err;
}

void checkpoint_saver_abandon(struct checkpoint_saver *s)
{
	if (!s)
		return;
	s->is_late = 0;
	join(s);
	checkpoint_saving_close(s->saving);
	mem_free(s->path);
	mem_free(s);
}
