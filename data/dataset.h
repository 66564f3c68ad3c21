/* Rows to train on, as token ids and labels, whole in memory.
 *
 * A *row* is one document: ids[0..n) and, for each position, a label that is either an id or
 * DATASET_IGNORE. Labels are not shifted: the logits at t are compared with the label at t + 1, so a
 * *target* is a label other than DATASET_IGNORE at a position >= 1 of its row. Rows never see each other,
 * however they are batched or packed (data/batch.h).
 *
 * Files are read as streams, one record at a time; what stays is 4 bytes and a bit per token (4 more where
 * labels differ from ids). Formats:
 *
 *   tokens             {"input_ids": [..], "labels": [..]}; labels absent = the ids
 *   text               {"text": ".."}, one row per record; or a .txt or .md file, cut into rows of
 *                      max_length tokens. The tokenizer's special tokens are put around each text,
 *                      and its end-of-text id, where it names one, behind it
 *   alpaca             {"instruction", "input", "output"}, maybe "system" and "history", in
 *                      Stanford's form; as chats where the user chose a chat template
 *   prompt_completion  {"prompt", "completion"}, both strings, or both lists of messages
 *   messages           {"messages": [{"role", "content"}, ...]}, maybe "tools" (data/chat.h)
 *   sharegpt           {"conversations": [{"from", "value"}, ...]}, the same in other words
 *
 * as records of any file that data/source/records.h reads. Alpaca and prompts of strings: ids =
 * encode(prompt) + encode(answer) + end-of-text, tokenized apart, and the prompt's labels are DATASET_IGNORE
 * unless train_on_inputs. Chats are rendered by the chat template and tokenized whole; the assistant's turns
 * have labels, up to and with their end-of-turn token (data/chat_labels.h).
 *
 * A dataset is read-only once open; any thread may read it.
 */
#ifndef FERRY_DATA_DATASET_H
#define FERRY_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "data/label.h"
#include "data/row_formats.h"
#include "data/sampler.h"
#include "data/source/files.h"

struct chat_template;
struct str;
struct tokenizer;

enum dataset_format {
	DATASET_FORMAT_AUTO, /* by the keys of the first record, or the name's end .txt or .md */
#define DATASET_FORMAT_ENUM(id, name, function, keys) DATASET_FORMAT_##id,
	ROW_FORMATS(DATASET_FORMAT_ENUM)
};

enum dataset_long_rows { DATASET_LONG_ROWS_TRUNCATE, DATASET_LONG_ROWS_DROP, DATASET_LONG_ROWS_ERROR };
enum dataset_inputs { DATASET_INPUTS_MASK, DATASET_INPUTS_TRAIN };
enum dataset_turns { DATASET_TURNS_ALL, DATASET_TURNS_LAST };

struct dataset_options {
	const char *path;  /* a file, a folder or a pattern: data/source/files.h */
	const char *split; /* of a folder; NULL = train */
	enum files_split split_want;
	enum dataset_format format;
	const char *text_field;                    /* key of the text format; NULL = "text" */
	const struct tokenizer *tokenizer;         /* NULL is allowed for the tokens format */
	const struct err *no_tokenizer;            /* why there is none; NULL: nobody looked */
	int64_t vocab_count;                       /* ids and labels must be below; 0 = the tokenizer's */
	int64_t max_length_tokens;                 /* 0 = rows are never cut */
	enum dataset_long_rows long_rows;          /* what happens to longer rows */
	enum dataset_inputs inputs;                /* whether prompts are trained on */
	enum dataset_turns turns;                  /* which answers of a chat are */
	const struct chat_template *chat_template; /* NULL: rows of chats are refused */
	int chat_template_is_chosen;               /* by the user: alpaca rows become chats */
	int64_t max_samples;                       /* only the first records of the file; 0 = all */
};

struct dataset {
	enum dataset_format format; /* what was found */
	int64_t row_count, token_count, target_count;
	int64_t *row_start;   /* [row_count + 1], into the pools */
	int32_t *row_targets; /* [row_count] targets of each row */
	int32_t *ids;         /* [token_count] */
	uint8_t *trained;     /* bit i: the label of token i is not DATASET_IGNORE */
	int32_t *labels;      /* [token_count]; NULL where every label is DATASET_IGNORE or its own id */
	struct {
		int64_t records;                /* read from the file */
		int64_t truncated;              /* rows that were cut to max_length_tokens */
		int64_t dropped;                /* longer rows that were left out */
		int64_t empty;                  /* records without a single token, left out */
		int64_t without_target;         /* rows that are kept and teach nothing */
		int64_t longest_tokens;         /* before cutting */
		int64_t turn_ends;              /* end-of-turn tokens of chats that are trained */
		int64_t turn_ends_cut;          /* those that max_length cut off */
		char without_target_first[256]; /* file:line of the first such row */
	} counts;
};

/* Reads a file. ERR_INPUT names file, line (or element of the array) and what is wrong: a missing key,
 * an id outside the vocabulary, labels of another length, no rows, no row with a target.
 * Chats: what the template refuses, a turn without its end-of-turn token. */
int dataset_open(struct dataset **d, const struct dataset_options *options);
void dataset_close(struct dataset *d);

/* Takes rows out of `d` into a new dataset for evaluation; both keep file order. `part` below 1 is a
 * fraction of the rows (rounded up), from 1 on a number of rows. The rows taken are those at the first places
 * of permutation_at(shuffle, seed, PERMUTATION_STREAM_EVAL_SPLIT, row_count, .): a pure function of these.
 * ERR_INPUT when no row would be left on either side. */
int dataset_split(
        struct dataset **eval, struct dataset *d, double part, enum shuffle_version shuffle, uint64_t seed);

static inline int64_t dataset_row_tokens(const struct dataset *d, int64_t row)
{
	return d->row_start[row + 1] - d->row_start[row];
}

static inline const int32_t *dataset_row_ids(const struct dataset *d, int64_t row)
{
	return d->ids + d->row_start[row];
}

/* The label at a position of a row, not shifted. */
static inline int32_t dataset_label(const struct dataset *d, int64_t row, int64_t position)
{
	int64_t i = d->row_start[row] + position;

	if (!(d->trained[i / 8] >> (i % 8) & 1))
		return DATASET_IGNORE;
	return d->labels ? d->labels[i] : d->ids[i];
}

/* Appends Stanford's prompt, up to where the answer begins; without the part about an input where input_bytes
 * is 0. */
void dataset_alpaca_prompt(struct str *prompt, const char *instruction, size_t instruction_bytes,
        const char *input, size_t input_bytes);

/* "alpaca", ... */
const char *dataset_format_name(enum dataset_format format);

#endif
