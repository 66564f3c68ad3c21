/* Training rows as token ids and labels: in memory, or in cache files if they exceed the memory limit.
 *
 * A *row* is one document: ids[0..n) and, for each position, a label that is either an id or DATASET_IGNORE.
 * Labels are not shifted: the logits at t are compared with the label at t + 1. So a *target* is a label
 * other than DATASET_IGNORE at a position >= 1 of its row. Rows never attend to each other, in any batch or
 * bin (data/batch.h).
 *
 * ferry reads files as streams, one record at a time. A row takes 4 bytes and a bit per token, and 20 bytes
 * more. If labels differ from ids, it takes 4 more bytes per token (data/rows/row_store.h). Rows that exceed
 * memory_bytes go to cache_dir, and ferry reads them one by one from there. Formats:
 *
 *  tokens             {"input_ids": [..], "labels": [..]}; without labels, the ids are the labels
 *  text               {"text": ".."}, one row per record; or a .txt or .md file, cut into rows of
 *                     max_length tokens. The tokenizer's special tokens surround each text. Its
 *                     end-of-text id, if it has one, comes last
 *  alpaca             {"instruction", "input", "output"}, maybe "system" and "history", in a form
 *                     of enum dataset_alpaca
 *  prompt_completion  {"prompt", "completion"}: both strings, or both lists of messages
 *  messages           {"messages": [{"role", "content"}, ...]}, maybe "tools" (data/chat/chat.h)
 *  sharegpt           {"conversations": [{"from", "value"}, ...]}: chats with other key names
 *  preference         {"prompt", "chosen", "rejected"}: two answers, as texts or as lists of messages; or
 *                     {"messages", "rejected_response"}, where the messages end with the chosen one
 *
 * Records come from any file of data/source/records.h; data/chat/row_fields.h maps other names of columns.
 * For alpaca and prompts of strings, ids = encode(prompt) + encode(answer) + end-of-text. The prompt's labels
 * are DATASET_IGNORE unless `inputs` says otherwise. The chat template renders chats, which are tokenized
 * whole. The assistant's turns have labels, including their end-of-turn token (data/chat/chat_labels.h).
 *
 *  texts              {"anchor", "positive"}, maybe negatives and a score, for an embedder; columns of other
 *                     names by their order. With a teacher's vectors any number of texts
 *
 * A record with two answers becomes a *pair*: rows 2i (prompt and chosen answer) and 2i + 1 (prompt and
 * rejected answer). Only answers have labels. A pair is kept whole, with a target in each row, or left out.
 *
 * With DATASET_JUDGED_ONLY a record of any format with answers becomes two rows too: the prompt with its
 * answer, and the prompt with another record's (data/rows/row_judged.c). The first label of both, which
 * nothing predicts, is the token's id if the record's own answer is desirable, else DATASET_IGNORE.
 *
 * A dataset is read-only once open; any thread may read it.
 */
#ifndef FERRY_DATA_ROWS_DATASET_H
#define FERRY_DATA_ROWS_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "data/chat/label.h"
#include "data/rows/row_formats.h"
#include "data/rows/row_store.h"
#include "data/source/files.h"
#include "data/source/sets.h"

struct chat_template;
struct str;
struct tokenizer;

/* SPLIT: texts become several rows, others are cut */
enum dataset_long_rows {
	DATASET_LONG_ROWS_TRUNCATE,
	DATASET_LONG_ROWS_DROP,
	DATASET_LONG_ROWS_ERROR,
	DATASET_LONG_ROWS_SPLIT
};
enum dataset_turns { DATASET_TURNS_ALL, DATASET_TURNS_LAST };
/* Which rows are read: any, also pairs; others than pairs; the same as texts whose tokens are hidden, special
 * ones never; pairs alone; pairs as whole texts, with a margin; several texts; texts or words with a label;
 * single answers with a label. */
enum dataset_pairs {
	DATASET_PAIRS_ANY,
	DATASET_PAIRS_NONE,
	DATASET_HIDDEN_ONLY,
	DATASET_PAIRS_ONLY,
	DATASET_REWARDS_ONLY,
	DATASET_TEXTS_ONLY,
	DATASET_LABELS_ONLY,
	DATASET_JUDGED_ONLY
};
/* Stanford's words, these with a newline before the answer, or the chat template */
enum dataset_alpaca { DATASET_ALPACA_STANFORD, DATASET_ALPACA_STANFORD_NEWLINE, DATASET_ALPACA_CHAT };

/* Rows of several texts: what the loss needs of them, and its name for messages. */
struct dataset_texts {
	const char *wanted_by; /* "embedding_loss=mnrl" */
	int is_alone;          /* 1: one text is read, whatever else the row has */
	int least, needs_score;
	int may_lack_score;    /* 1: rows of more than two texts may, it is 1 then */
	int scores_sides;      /* 1: scores are 0 or 1 */
	int scores_negatives;  /* 1: a list, the score of each negative, or of each text behind the first */
	int has_vectors;       /* 1: a vector of a teacher for all texts, or a list with one for each */
	int64_t vector_count;  /* its numbers; 0: as many as in the first row */
	const char *prompt[2]; /* before the first text, before the others; NULL: none */
};

/* Rows with a label: how many there are, and their names (NULL: none has one). */
struct dataset_labels {
	int64_t count;
	const char *const *names; /* [count] */
	int is_regression;        /* labels are numbers */
	int is_of_tokens;         /* words have labels, not rows */
	int is_share;             /* from 0 to 1 */
};

/* What a data set has of its own. */
struct dataset_own {
	struct dataset_texts texts;
	struct row_names names;
};

struct dataset_options {
	const char *path;  /* one or several sets: data/source/sets.h */
	const char *split; /* of a folder, maybe with a part: data/source/split_part.h; NULL = train */
	enum files_split split_want;
	enum dataset_format format;
	enum dataset_pairs pairs;
	struct dataset_texts texts;        /* with DATASET_TEXTS_ONLY */
	int has_words;                     /* with DATASET_HIDDEN_ONLY: rows say where words begin */
	struct dataset_labels labels;      /* with DATASET_LABELS_ONLY */
	int64_t judged_group;              /* with DATASET_JUDGED_ONLY: rows that exchange answers */
	struct row_names names;            /* of columns and roles if not the usual ones */
	const struct dataset_own *own;     /* of each set, instead of texts and names; NULL: one for all */
	int own_count;                     /* of sets; another number of them is an error */
	const struct tokenizer *tokenizer; /* NULL is allowed for the tokens format */
	const struct err *no_tokenizer;    /* the reason; NULL: not searched */
	int64_t vocab_count;               /* ids and labels must be below; 0 = the tokenizer's */
	const int64_t *refused;            /* [refused_count] ids that no row may have */
	int refused_count;
	int64_t max_length_tokens;                 /* 0 = rows are never cut */
	enum dataset_long_rows long_rows;          /* what happens to longer rows */
	int inputs;                                /* bits of enum dataset_inputs */
	enum dataset_turns turns;                  /* trained answers of a chat */
	const struct chat_template *chat_template; /* NULL: rows of chats are refused */
	enum dataset_alpaca alpaca;                /* the text of alpaca rows */
	int64_t memory_bytes;                      /* limit for rows; 0 = no limit */
	const char *cache_dir;     /* for rows beyond it; NULL: none, so more rows are an error */
	const char *recipe;        /* other inputs of rows, for the cache: the tokenizer, the template */
	int64_t text_window_bytes; /* piece of a text file to tokenize at once; 0 = 8 MiB. For tests */
	int64_t max_samples;       /* only the first records of each set; 0 = all */
};

enum { DATASET_TURN_END_IDS_MAX = 16 }; /* a chat template usually has one, rarely two */

/* The rows of one of several data sets. They follow each other in the order of the sets' names. */
enum { DATASET_SET_NAME_BYTES = 160 };
struct dataset_set {
	char name[DATASET_SET_NAME_BYTES]; /* as given; long names are cut at the front */
	double weight;                     /* 0 = none */
	enum dataset_format format;
	int64_t first_row, row_count;
	int64_t texts; /* as in struct dataset */
};

struct dataset_counts {
	int64_t records;                /* read from the file */
	int64_t truncated;              /* rows cut to max_length_tokens */
	int64_t split;                  /* texts that became several rows */
	int64_t dropped;                /* longer rows that were dropped; of pairs, pairs with such a row */
	int64_t empty;                  /* dropped records without tokens */
	int64_t without_target;         /* kept rows without a target; of pairs, pairs left out for one */
	int64_t longest_tokens;         /* before cutting */
	int is_longest_cut;             /* 1: a longer text was not tokenized to its end */
	int64_t turn_ends;              /* trained end-of-turn tokens of chats */
	int64_t turn_ends_cut;          /* those that max_length cut off */
	char without_target_first[256]; /* file:line of the first such row */
	int64_t chats, answered_chats;  /* rows of chats; those with a turn of the assistant */
	char unread_columns[ROW_COLUMNS_BYTES]; /* "a, b": with values that no reader used */
	int64_t empty_answers;                  /* rows with a trained answer that is empty */
	char empty_answers_first[256];
	int64_t desirable;   /* judged answers whose label is true */
	int64_t equal_pairs; /* kept pairs of two equal rows */
	char equal_pairs_first[256];

	int32_t turn_end_ids[DATASET_TURN_END_IDS_MAX]; /* the ids of both, each once */
	int turn_end_id_count;
};

struct dataset {
	enum dataset_format format; /* the format of the first set */
	int64_t texts;        /* of a record of the first set, each a row; 0: records are no lists of texts */
	int is_apart;         /* 1: sets have texts of their own, and no step has rows of two */
	int64_t vector_count; /* numbers of a teacher's vector that each row has; 0: none has one */
	int is_paired;        /* rows 2i and 2i + 1 are the chosen and the rejected one of a pair */
	int has_words;        /* of these: labels say where words begin (DATASET_GOES_ON) */
	int32_t mask_id, mask_pad_id,
	        hidden_ids; /* with DATASET_HIDDEN_ONLY: the mask, padding or -1, one past the last id */
	int is_judged;      /* row 2i is a prompt with its answer, 2i + 1 the same with another's */
	struct dataset_set sets[DATA_SETS_MAX];
	int set_count, is_weighted;
	int64_t row_count, token_count, target_count;
	int64_t own_label_rows;     /* with labels that are neither ids nor ignored */
	uint64_t content_hash;      /* of files: dataset_hash; 0 = not known */
	struct row_entry *own_rows; /* `rows`, if they are in memory */
	const struct row_entry *rows;
	struct row_store *store;
	struct dataset_counts counts;
};

/* Reads the data sets of options->path. ERR_INPUT names file, line (or element of the array) and the reason:
 * a missing key, an id outside the vocabulary, labels of another length, no rows, no row with a target, no
 * directory for a cache. For chats also: the template refuses, or a turn lacks its end-of-turn token. */
int dataset_open(struct dataset **d, const struct dataset_options *options);
void dataset_close(struct dataset *d);

/* What stays together: a pair of rows, the texts of a record, or a row. How many rows that are in a set; and
 * its word for messages. */
static inline int64_t dataset_set_unit_rows(const struct dataset *d, int set)
{
	return d->is_paired || d->is_judged ? 2 : d->sets[set].texts ? d->sets[set].texts : 1;
}

static inline const char *dataset_unit(const struct dataset *d)
{
	return d->is_paired ? "pair" : "row"; /* of texts: a row of them */
}

static inline int64_t dataset_set_unit_count(const struct dataset *d, int set)
{
	return d->sets[set].row_count / dataset_set_unit_rows(d, set);
}

static inline int64_t dataset_unit_count(const struct dataset *d)
{
	int64_t count = 0;

	for (int i = 0; i < d->set_count; i++)
		count += dataset_set_unit_count(d, i);
	return count;
}

/* The set of a row. */
static inline int dataset_set_of(const struct dataset *d, int64_t row)
{
	int set = 0;

	while (set + 1 < d->set_count && row >= d->sets[set + 1].first_row)
		set++;
	return set;
}

static inline int64_t dataset_row_tokens(const struct dataset *d, int64_t row)
{
	return d->rows[row].token_count;
}

static inline int64_t dataset_row_targets(const struct dataset *d, int64_t row)
{
	return d->rows[row].target_count;
}

/* Ids and labels of a row, valid until the buffer is used again. Returns 0; rows in files may also fail with
 * ERR_IO, ERR_INPUT or ERR_NOMEM. */
static inline int dataset_row_read(
        struct row_view *view, struct row_buffer *buffer, const struct dataset *d, int64_t row)
{
	return row_store_read(view, buffer, d->store, &d->rows[row], d->vector_count);
}

/* The id that the label of a token names, or DATASET_IGNORE: row_label without DATASET_GOES_ON. */
static inline int32_t dataset_label_id(const struct dataset *d, const struct row_view *v, int64_t position)
{
	int32_t label = row_label(v, position);

	return d->has_words && label >= DATASET_GOES_ON ? label - DATASET_GOES_ON : label;
}

/* Memory of the rows, without files and their pages in the system's cache. */
int64_t dataset_memory_bytes(const struct dataset *d);
int64_t dataset_store_bytes(const struct dataset *d); /* the part that parts of a split share */

/* Hash of all ids, lengths, trained flags and vectors in order; the same for rows in memory and in files.
 * Reads all rows unless the hash is known. dataset_hash_labels continues *hash with labels that are neither
 * ids nor ignored, and leaves it unchanged if there are none. */
int dataset_hash(uint64_t *hash, const struct dataset *d);
int dataset_hash_labels(uint64_t *hash, const struct dataset *d);

/* Appends Stanford's prompt up to the answer; without the part about an input if input_bytes is 0. alpaca:
 * not DATASET_ALPACA_CHAT. */
void dataset_alpaca_prompt(struct str *prompt, enum dataset_alpaca alpaca, const char *instruction,
        size_t instruction_bytes, const char *input, size_t input_bytes);

/* Usual columns of the labels of words, ending with NULL. */
extern const char *const dataset_tag_names[];

/* "alpaca", ... */
const char *dataset_format_name(enum dataset_format format);

#endif
