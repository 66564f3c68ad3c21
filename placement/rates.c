/* Finds the machine's rates: described, measured or assumed. */
#include "placement/rates.h"

#include "placement/host_memory.h"
#include "placement/measure.h"
#include "placement/ranks.h"
#include "placement/simulate.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/world.h"
#include "host/pool.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

static const double BUSY_SHARE = 0.75; /* share of busy threads above which a measurement is disturbed */

enum { HOST_SHARE = 4 }; /* measuring may use one part in this many of the rank's memory */

/* The rates that text and JSON show, with unit and scale. */
static const struct rate {
	size_t offset;
	const char *key, *name, *unit;
	double scale; /* from bytes/s, flop/s or s to the unit */
} rates[] = {
        {offsetof(struct device_speed, matmul_flops_bf16), "bf16_gflops", "bf16 products", "GFLOP/s", 1e-9},
        {offsetof(struct device_speed, matmul_flops_f32), "fp32_gflops", "fp32 products", "GFLOP/s", 1e-9},
        {offsetof(struct device_speed, attention_flops), "attention_gflops", "attention", "GFLOP/s", 1e-9},
        {offsetof(struct device_speed, attention_grad_flops), "attention_grad_gflops", "its backward",
                "GFLOP/s", 1e-9},
        {offsetof(struct device_speed, memory_bytes), "memory_gbps", "device memory", "GB/s", 1e-9},
        {offsetof(struct device_speed, h2d_bytes), "h2d_gbps", "copies in", "GB/s", 1e-9},
        {offsetof(struct device_speed, d2h_bytes), "d2h_gbps", "copies out", "GB/s", 1e-9},
        {offsetof(struct device_speed, host_memory_bytes), "host_memory_gbps", "host memory", "GB/s", 1e-9},
        {offsetof(struct device_speed, host_update_bytes), "host_update_gbps", "AdamW on the CPU", "GB/s",
                1e-9},
        {offsetof(struct device_speed, comm_bytes), "comm_gbps", "collectives", "GB/s", 1e-9},
        {offsetof(struct device_speed, copies_bytes), "copies_gbps", "copies both ways at once", "GB/s",
                1e-9},
        {offsetof(struct device_speed, launch_s), "launch_us", "a kernel", "us", 1e6},
        {offsetof(struct device_speed, call_s), "call_us", "a host function", "us", 1e6},
        {offsetof(struct device_speed, pin_bytes), "pin_gbps", "pinning", "GB/s", 1e-9},
};

enum { RATE_COUNT = sizeof(rates) / sizeof(*rates) };

static double *rate_of(struct device_speed *speed, int i)
{
	return (double *)((char *)speed + rates[i].offset);
}

static double rate_told(const struct device_speed *speed, int i)
{
	double value = *(const double *)((const char *)speed + rates[i].offset);

	return value * rates[i].scale;
}

static double rate_get(const struct device_speed *speed, int i)
{
	return *(const double *)((const char *)speed + rates[i].offset);
}

/* Whether value is a known rate and slower than *speed's: of a time the longer one. */
static int rate_is_slower(double value, const struct device_speed *speed, int i)
{
	double now = rate_get(speed, i);
	int is_time = rates[i].scale > 1;

	return value != 0 && (now == 0 || (is_time ? value > now : value < now));
}

/* ---- described ---- */

static int described_read(struct machine_rates *s, const struct config *c, enum device_kind kind)
{
	int is_host = device_facts_of(kind)->is_host;
	struct machine *machine;
	int rc;

	if (!ranks_reads_files(c, world_self())) /* rank 0 reads it and chooses */
		return 0;
	rc = machine_read(&machine, c->machine);
	if (rc)
		return rc;
	if ((machine->gpu_count > 0) == is_host)
		rc = err_set(ERR_INPUT,
		        "machine=%s describes a machine %s GPUs, but this run computes on the %s", c->machine,
		        machine->gpu_count ? "with" : "without", is_host ? "host" : "GPU");
	else
		machine_speed(&s->speed, machine, world_self()->size);
	machine_free(machine);
	return rc;
}

/* host_copy_gbps limits copies on any machine on which the host computes. */
static void throttle(struct device_speed *speed, const struct config *c)
{
	double copy = 1e9 * c->host_copy_gbps;

	if (!speed->host_computes || !(copy > 0))
		return;
	speed->h2d_bytes = copy < speed->h2d_bytes ? copy : speed->h2d_bytes;
	speed->d2h_bytes = copy < speed->d2h_bytes ? copy : speed->d2h_bytes;
}

/* ---- measured ---- */

/* Warns if other processes make the machine slower. */
static void load_warn(const struct pool *pool)
{
	double load = 0, threads = (double)pool_worker_count(pool);

	if (getloadavg(&load, 1) == 1 && load > BUSY_SHARE * threads)
		log_warn("other processes keep about %.0f of %.0f CPU threads busy; the measured speed, and "
		         "times that follow from it, are those of a busy machine",
		        fmin(load, threads), threads);
}

static int here_measure(struct machine_rates *s, const struct config *c, enum device_kind kind,
        const struct engine_options *options)
{
	const struct device_options d = {.pool = options->pool,
	        .threads = pool_worker_count(options->pool),
	        .host_copy_gbps = c->host_copy_gbps};
	int64_t host_bytes = host_limit_bytes(c, NULL, ranks_of_host(c, NULL, world_self())) / HOST_SHARE;
	struct engine_options o = *options;
	struct device *own = NULL;
	struct device_speed speed = s->speed;
	int rc = 0;

	if (!device_has_bytes(o.device)) {
		rc = device_open(&own, device_facts_of(kind)->name, &d);
		if (rc) /* no such device here */
			return rc == ERR_NOMEM ? rc : 0;
		o.device = own;
	}
	load_warn(options->pool);
	rc = measure_speed(&speed, &o, host_bytes);
	if (!rc)
		*s = (struct machine_rates){RATES_MEASURED, speed};
	device_close(own);
	return rc == ERR_FIT ? 0 : rc;
}

int rates_find(struct machine_rates *s, const struct config *c, const struct machine *machine,
        enum device_kind kind, const struct engine_options *o)
{
	if (s->origin != RATES_UNKNOWN)
		return 0;
	if (machine || c->machine) {
		int rc = 0;

		s->origin = RATES_DESCRIBED;
		if (machine)
			machine_speed(&s->speed, machine, ranks_of_host(c, machine, world_self()));
		else
			rc = described_read(s, c, kind);
		throttle(&s->speed, c);
		return rc;
	}
	s->origin = RATES_ASSUMED;
	if (device_facts_of(kind)->is_host)
		simulate_host_speed(&s->speed, pool_worker_count(o->pool), c->host_copy_gbps);
	else
		s->speed = device_speed_assumed;
	if (o->policy.inference || !o->train.max_tokens || o->device_budget_bytes < 0)
		return 0;
	return here_measure(s, c, kind, o);
}

int rates_share(struct machine_rates *s)
{
	const struct world *w = world_self();
	double *all;
	int rc;

	if (s->origin == RATES_DESCRIBED)
		return world_broadcast(&s->speed, sizeof(s->speed), 0);
	all = mem_alloc((size_t)w->size * RATE_COUNT, sizeof(*all));
	rc = world_agree(all ? 0 : ERR_NOMEM);
	for (int i = 0; i < RATE_COUNT && !rc; i++)
		all[w->rank * RATE_COUNT + i] = rate_get(&s->speed, i);
	if (!rc)
		rc = world_sum(all, w->size * RATE_COUNT);
	for (int r = 0; r < w->size && !rc; r++)
		for (int i = 0; i < RATE_COUNT; i++)
			if (rate_is_slower(all[r * RATE_COUNT + i], &s->speed, i))
				*rate_of(&s->speed, i) = all[r * RATE_COUNT + i];
	mem_free(all);
	return rc;
}

/* ---- as text and JSON ---- */

void rates_text(struct str *out, const struct machine_rates *s)
{
	const char *separator = ": ";

	str_add(out, s->origin == RATES_MEASURED    ? "this machine, measured"
	             : s->origin == RATES_DESCRIBED ? "the described machine"
	                                            : "an assumed machine");
	for (int i = 0; i < RATE_COUNT; i++) {
		if (!(rate_get(&s->speed, i) > 0))
			continue;
		str_printf(out, rate_told(&s->speed, i) < 9999.5 ? "%s%s %.4g %s" : "%s%s %.0f %s", separator,
		        rates[i].name, rate_told(&s->speed, i), rates[i].unit);
		separator = ", ";
	}
}

json_t *rates_json(const struct machine_rates *s)
{
	static const char *const origins[] = {[RATES_UNKNOWN] = "unknown",
	        [RATES_DESCRIBED] = "described",
	        [RATES_MEASURED] = "measured",
	        [RATES_ASSUMED] = "assumed"};
	json_t *object = json_pack("{s:s}", "origin", origins[s->origin]);

	for (int i = 0; i < RATE_COUNT && object; i++)
		if (rate_get(&s->speed, i) > 0)
			json_object_set_new(object, rates[i].key, json_real(rate_told(&s->speed, i)));
	return object;
}
