/* Private to data/rows/: builds a dataset by appending rows of each format to growing pools. */
#ifndef FERRY_DATA_ROWS_DATASET_BUILD_H
#define FERRY_DATA_ROWS_DATASET_BUILD_H

#include <jansson.h>
#include <stdint.h>

#include "data/rows/dataset.h"
#include "data/source/split_part.h"

struct chat;
struct chat_labels;
struct chat_warned;
struct judged;
struct pair;
struct token_list;

struct dataset_builder {
	float margin;        /* of the pair, with DATASET_REWARDS_ONLY */
	const float *vector; /* [d->vector_count] of the next row; NULL: zeros */
	struct dataset *d;
	const struct dataset_options *options;
	const struct row_names *names;     /* of the set being read, */
	const struct dataset_texts *texts; /* as these */
	int is_other_role_told;
	int is_nulls_told;
	const char *path; /* of the set being read */
	char split[SPLIT_NAME_BYTES];
	struct split_part part;                /* of each set */
	int64_t part_first, part_end;          /* its records in the present set */
	int64_t passed;                        /* records of the present set that lie before it */
	int64_t records_before;                /* of the sets before it */
	unsigned seen;                         /* bits of enum row_field that any row had */
	const char *where;                     /* of the record being read, for messages */
	char first_columns[ROW_COLUMNS_BYTES]; /* of the first record */
	json_t *columns;                       /* of the set: those with a value, true where one was read */
	int set_count;                         /* of all sets */
	int64_t vocab_count;                   /* 0 = unknown */
	struct row_cache *cache;               /* the cache if rows are in files; NULL: not yet */
	struct row_entry *entries;             /* of rows in memory: all, or those not yet written */
	int64_t entry_count, entry_cap, record_bytes, record_cap, written_bytes;
	int64_t told_ns, read_bytes, read_done_bytes, all_bytes; /* of files, for the line about progress */
	char *recipe;
	int is_made;                      /* another process made the same cache: nothing left to read */
	struct token_list *ids, *targets; /* of the row being made; emptied before each record */
	struct token_list *around;        /* what the tokenizer puts around a text; NULL: not yet known */
	int64_t around_before;            /* those before it */
	int32_t *hidden;                  /* [hidden_cap] with DATASET_HIDDEN_ONLY: labels of a row */
	int64_t hidden_cap;
	size_t said_bytes;          /* of its pieces of text so far */
	struct pair *pair;          /* the pair being made */
	struct judged *judged;      /* answers that wait for their group */
	struct chat_labels *labels; /* of the chat being made */
	struct chat_warned *warned; /* of the chats so far */
};

int dataset_builder_begin(struct dataset_builder *b);
void dataset_builder_free(struct dataset_builder *b);

/* Frees excess memory, or completes the cache. */
int dataset_builder_end(struct dataset_builder *b);

/* Opens a dataset from the cache: 1, or 0 if there is none. Needs b->recipe. */
int dataset_builder_find(struct dataset_builder *b);

/* With DATASET_HIDDEN_ONLY: *labels without those of special tokens (row_hidden.c), and the ids that stand
 * for hidden tokens. */
int row_hidden_labels(
        struct dataset_builder *b, const int32_t **labels, const int32_t *ids, int64_t count, int64_t masked);
int row_hidden_begin(struct dataset_builder *b);

/* As tokenizer_encode. With options->has_words also appends the labels of the ids, else none. */
enum add_special;
int row_hidden_encode(struct dataset_builder *b, struct token_list *ids, struct token_list *labels,
        const char *text, size_t len_bytes, enum add_special add);

/* Appends a record of words with a label each; and the class that a value names (row_labels.c). */
int row_words_read(struct dataset_builder *b, const json_t *record);
int row_class_read(float *label, const struct dataset_builder *b, const char *key, const json_t *value);

/* A number, also as a text or a boolean; and the refusal of a value, which it shows (row_value.c). */
int row_number_read(float *number, const struct dataset_builder *b, const char *key, const json_t *value);
int row_value_refuse(
        const struct dataset_builder *b, const char *key, const json_t *value, const char *expected);

/* Appends the tokens of a text with those that the tokenizer puts around any. A longer text loses the end of
 * its own tokens; where those are that are left. Appends nothing if long_rows drops it: own->count is 0 then,
 * and counts.dropped one more. */
struct row_span {
	int64_t first, count;
};
int row_text_append(struct token_list *to, struct row_span *own, struct dataset_builder *b,
        const struct token_list *text);

/* Appends an array of token ids. ERR_INPUT names the entry that is none. */
int row_ids_append(struct token_list *list, const json_t *array, const char *where, const char *key);

/* Appends a row. labels NULL: the first `masked` labels are DATASET_IGNORE and the others the ids. Applies
 * max_length_tokens and long_rows, counts, and checks ids and labels against the vocabulary. */
int dataset_builder_add(struct dataset_builder *b, const int32_t *ids, const int32_t *labels,
        int64_t token_count, int64_t masked);

/* Of a record of texts: how many of a text's tokens are kept beside `around` others (0 and a count of dropped
 * ones: none); and appends one text with its label, 32 bits of a float, and the
 * place where the second of two texts begins (token_count: there is one). */
int dataset_builder_fit_text(int64_t *kept, struct dataset_builder *b, int64_t token_count, int64_t around);
int dataset_builder_add_text(
        struct dataset_builder *b, const int32_t *ids, int64_t token_count, float label, int64_t second);

/* Appends a row as it is. Returns 1 if it has no target. */
int dataset_builder_append(struct dataset_builder *b, const int32_t *ids, const int32_t *labels,
        int64_t token_count, int64_t masked);
void dataset_builder_note_without_target(struct dataset_builder *b);

/* Judged answers: reads a record's label; takes its row, of which `kept` tokens fit; and appends the rows
 * that wait, at the end of a set. */
int row_judged_begin(struct dataset_builder *b, const json_t *record);
int row_judged_add(struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t token_count,
        int64_t masked, int64_t kept);
int row_judged_flush(struct dataset_builder *b);
int row_judged_check(const struct dataset_builder *b);
void row_judged_free(struct judged *judged);

/* Begins a pair. The next two rows, with labels, are its chosen and its rejected one. Both are added after
 * the second, or none of them if one has no target or is dropped. */
void dataset_builder_begin_pair(struct dataset_builder *b);

/* ERR_INPUT: the format is of pairs and none are wanted, or the other way round. */
int dataset_builder_check_pairs(const struct dataset_builder *b);

/* Finds the format from the record's keys, and reads a record: see row_formats.h. */
int row_format_find(enum dataset_format *format, const struct dataset_builder *b, const json_t *record);
int row_format_read(struct dataset_builder *b, const json_t *record);

/* A whole file of text, packed or not. */
int dataset_read_plain(struct dataset_builder *b, const char *path);

/* ---- for the formats ---- */

int dataset_builder_need_tokenizer(const struct dataset_builder *b);

/* A field of the record; NULL if absent. */
json_t *dataset_builder_get(struct dataset_builder *b, const json_t *record, enum row_field field);

/* The error for a missing field, with the existing columns and the key to set. */
int dataset_builder_missing(const struct dataset_builder *b, const json_t *record, enum row_field field);

/* A required text with its length, because it may contain a NUL. */
int dataset_builder_text(struct dataset_builder *b, const json_t *record, enum row_field field,
        const char **text, size_t *len_bytes);

/* A column was used. dataset_builder_get does this itself. */
void dataset_builder_note_read(struct dataset_builder *b, const char *column);

/* ERR_INPUT: the row has tools, which its format cannot hold. */
int dataset_builder_refuse_tools(const struct dataset_builder *b, const json_t *record);

/* Remembers the columns of a record that hold something; at the end of a set, adds those that nothing read
 * to counts.unread_columns. */
int row_columns_note(struct dataset_builder *b, json_t *record);
void row_columns_end(struct dataset_builder *b);

/* Replaces a chat that is JSON in a text, as in a CSV cell, by its list. */
int row_columns_parse_chat(const struct dataset_builder *b, json_t *record);

/* ERR_INPUT: the user named a column that no row has. */
int dataset_builder_check_seen(const struct dataset_builder *b);

/* Appends a piece of a row. Pieces are tokenized separately, so no token spans the border, and a prompt has
 * the ids that it has when it is generated from. The tokenizer's prefix, and the space that some put before a
 * text, come before the first piece only. The options decide whether prompts are trained. */
enum dataset_piece { DATASET_PIECE_PROMPT, DATASET_PIECE_ANSWER };
int dataset_builder_say(
        struct dataset_builder *b, const char *text, size_t len_bytes, enum dataset_piece piece);

/* Appends the end-of-text id after the ids from `from` on, unless it is there already. */
int dataset_builder_end_text(struct dataset_builder *b, int64_t from, enum dataset_piece piece);

/* Counts the row if a trained answer has only blanks. */
void dataset_builder_note_answer(struct dataset_builder *b, const char *answer, size_t len_bytes);

/* Adds a prompt, and an answer with its end; `piece` says whether the answer is trained. */
int dataset_builder_add_answer(struct dataset_builder *b, const char *prompt, size_t prompt_bytes,
        const char *answer, size_t answer_bytes, enum dataset_piece piece);

/* Adds the row of the pieces so far. */
int dataset_builder_add_said(struct dataset_builder *b);

/* Adds the record's tools, documents and variables of the template. */
int dataset_builder_add_extras(struct dataset_builder *b, struct chat *chat, const json_t *record);

/* Appends a list of messages, or of ShareGPT turns. */
int dataset_builder_add_messages(const struct dataset_builder *b, struct chat *chat, const json_t *list);

/* Appends the record's system text as the first message, if there is one. */
int dataset_builder_add_system(struct dataset_builder *b, struct chat *chat, const json_t *record);

/* Reads a record of Alpaca with its answer in this field. Of pairs, only that answer is trained. */
int dataset_builder_read_alpaca(struct dataset_builder *b, const json_t *record, enum row_field answer);

/* Adds the row of a chat. `kind` says which bit of options->inputs is about it. */
int dataset_builder_add_chat(struct dataset_builder *b, const struct chat *chat, enum dataset_inputs kind);

#endif
