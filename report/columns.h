/* The rows of a run's metrics, reduced to what a chart can show.
 *
 * Mental model. Steps are cut into columns of equal width. While rows arrive, the width doubles whenever the
 * run outgrows COLUMNS_MAX columns, and neighbours are merged. So memory is bounded for any number of rows. A
 * column keeps minimum, maximum and mean of each metric: a spike of one step stays visible.
 *
 * Both lists below are the metrics and waits of metrics.jsonl that a page shows, under their names there
 * (train/metrics.h).
 */
#ifndef FERRY_REPORT_COLUMNS_H
#define FERRY_REPORT_COLUMNS_H

#include <stdint.h>

#define REPORT_METRICS(ROW)                                                                                  \
	ROW(LOSS, "loss")                                                                                    \
	ROW(EVAL_LOSS, "eval_loss")                                                                          \
	ROW(GRAD_NORM, "grad_norm")                                                                          \
	ROW(LEARNING_RATE, "learning_rate")                                                                  \
	ROW(TOKENS_PER_S, "tokens_per_s")                                                                    \
	ROW(HOST_BYTES, "host_peak_bytes")                                                                   \
	ROW(PINNED_BYTES, "pinned_bytes")                                                                    \
	ROW(DEVICE_BYTES, "device_peak_bytes")                                                               \
	ROW(MARGIN, "rewards/margins")                                                                       \
	ROW(EVAL_MARGIN, "eval_rewards/margins")                                                             \
	ROW(ACCURACY, "rewards/accuracies")                                                                  \
	ROW(EVAL_ACCURACY, "eval_rewards/accuracies")                                                        \
	ROW(REWARD_CHOSEN, "rewards/chosen")                                                                 \
	ROW(REWARD_REJECTED, "rewards/rejected")

/* With what compute waited for. */
#define REPORT_WAITS(ROW)                                                                                    \
	ROW(H2D, "h2d", "copies to the device")                                                              \
	ROW(D2H, "d2h", "copies to the host")                                                                \
	ROW(COMM, "comm", "collectives")                                                                     \
	ROW(CPU, "cpu", "AdamW on the CPU")                                                                  \
	ROW(DISK, "disk", "checkpoint writes")

enum report_metric {
#define ROW(id, name) REPORT_##id,
	REPORT_METRICS(ROW)
#undef ROW
	        REPORT_METRIC_COUNT
};

enum report_wait {
#define ROW(id, name, meaning) REPORT_WAIT_##id,
	REPORT_WAITS(ROW)
#undef ROW
	        REPORT_WAIT_COUNT
};

extern const char *const report_metric_names[REPORT_METRIC_COUNT];
extern const char *const report_wait_names[REPORT_WAIT_COUNT];
extern const char *const report_wait_meanings[REPORT_WAIT_COUNT];

enum { COLUMNS_MAX = 1024 };

/* A metric in a column. null_count: rows that have null, for a number that was not finite. */
struct column_value {
	double min, max, sum;
	int64_t count, null_count;
};

struct column {
	int64_t row_count; /* 0: no row, and nothing else is set */
	int64_t first_step, last_step;
	int64_t skipped_count;
	struct column_value values[REPORT_METRIC_COUNT];
	double step_ms, wait_ms[REPORT_WAIT_COUNT]; /* sums */
	double tokens, seconds;                     /* of the run up to its last row */
};

struct columns {
	struct column *items; /* [COLUMNS_MAX]; NULL before the first row */
	int64_t origin_step;  /* of items[0] */
	int64_t width_steps;
	int count; /* items in use */
};

/* The column of a step, which counts one more row. Steps before the first one that was asked for go to the
 * first column. NULL: out of memory. */
struct column *columns_at(struct columns *c, int64_t step);

/* Adds a value, which must be finite. */
void column_value_add(struct column_value *v, double value);

/* The time of steps with their waits. A step waits for a checkpoint before it begins, so that wait is not in
 * step_ms. */
double report_time_ms(double step_ms, const double *wait_ms);

/* Merges columns until there are at most count_max of them, count_max > 0. */
void columns_reduce(struct columns *c, int count_max);

void columns_free(struct columns *c);

#endif
