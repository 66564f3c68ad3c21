/* The event file of TensorBoard: OUTPUT_DIR/events.out.tfevents.ferry.
 *
 * It is made from metrics.jsonl alone: the same rows give the same bytes. So nothing has to be remembered.
 * Whatever happened before (a kill, a full disk, a resumed older checkpoint, a directory that was moved),
 * the first call reads the rows again, keeps the part of the file that they give, cuts off the rest, and
 * appends. No step stands there twice. Failures are warnings; a later call tries again.
 *
 * Names are those of transformers: "train/loss" of the key loss, "eval/loss" of eval_loss; members of an
 * object as "train/wait_ms/h2d". Texts, truth values and nulls are left out. Format: TFRecord, an Event of
 * TensorFlow's event.proto in each, a scalar as simple_value.
 */
#ifndef FERRY_TRAIN_EVENTS_H
#define FERRY_TRAIN_EVENTS_H

#include "base/json.h"
#include "base/str.h"

struct events;

/* For the rows of `metrics`. Writes nothing. NULL: out of memory. */
struct events *events_open(const char *dir, const char *metrics);

/* Writes what the metrics have and the events have not. NULL is allowed. */
void events_follow(struct events *e);

/* Goes on in another directory. ERR_NOMEM. NULL is allowed. */
int events_move(struct events *e, const char *dir, const char *metrics);

void events_close(struct events *e); /* NULL is allowed */

/* Appends the records of a row; `time` is that of its record, or the one before where it has none.
 * is_first: with the record that begins a file. */
void events_add_row(struct str *out, const json_t *row, double *time, int is_first);

#endif
