/* The vocabulary: the text of each id, and the id of each text.
 *
 * With in_bytes (byte-level BPE), an entry is stored as the bytes that it spells in the byte alphabet
 * (data/tokenizer/byte_level.h), to compare it with text. An entry with a character outside this alphabet
 * keeps its own UTF-8 bytes and is marked odd. Without in_bytes, entries are stored as in the file. The model
 * does not see odd entries and added tokens as words; vocab_find_content finds them.
 */
#ifndef FERRY_DATA_TOKENIZER_VOCAB_H
#define FERRY_DATA_TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"

enum {
	VOCAB_ID_END = 1 << 22,        /* ids in a file must be below */
	VOCAB_CONTENT_BYTES = 1 << 14, /* the longest content */
};

enum vocab_kind {
	VOCAB_KIND_WORD = 0,
	VOCAB_KIND_ODD = 1 << 0,
	VOCAB_KIND_ADDED = 1 << 1,
};

struct vocab_slot {
	uint32_t hash;
	int32_t id; /* -1 = empty */
};

struct vocab_entry {
	uint64_t offset : 40; /* into bytes */
	uint64_t kind : 2;    /* enum vocab_kind */
	uint64_t present : 1;
	uint32_t len_bytes;
};

struct vocab {
	int in_bytes;                /* set it before the first entry, like */
	int later_wins;              /* a repeated word gets its later id, instead of an error */
	size_t longest_bytes;        /* of all entries */
	int64_t id_end;              /* one past the highest id */
	int64_t entry_count;         /* ids that have an entry */
	struct vocab_entry *entries; /* [cap], by id */
	int64_t cap;
	struct str bytes;
	struct vocab_slot *slots; /* entries of all kinds */
	int64_t slot_count, slot_used;
};

/* Adds id with its content, spelled as in tokenizer.json; kind is WORD or ADDED. ERR_INPUT if the id or the
 * content exists already, or the id is out of range (messages lack `where`). */
int vocab_add(struct vocab *v, const char *content, size_t len_bytes, int64_t id, enum vocab_kind kind);
void vocab_free(struct vocab *v);

/* The id of the word with these bytes, or -1. */
int32_t vocab_find(const struct vocab *v, const void *bytes, size_t len_bytes);

/* The id of a content, spelled as in tokenizer.json, or -1. */
int32_t vocab_find_content(const struct vocab *v, const char *content, size_t len_bytes);

/* vocab_find_content for several contents: faster, because it fetches memory for all of them at once. A query
 * without content keeps its id. */
struct vocab_query {
	const char *content;
	size_t len_bytes;
	uint32_t hash;
	int32_t id;
};
void vocab_find_many(const struct vocab *v, struct vocab_query *queries, int count);

/* The ids of "<0x00>" to "<0xFF>", -1 for those that are missing. */
void vocab_byte_tokens(const struct vocab *v, int32_t ids[256]);

/* Appends the content of an id, spelled as in tokenizer.json; nothing if the id is missing. */
void vocab_content(const struct vocab *v, struct str *out, int64_t id);

/* The bytes of an id; NULL with len_bytes 0 if the id is missing. */
static inline const char *vocab_bytes(const struct vocab *v, int64_t id, size_t *len_bytes)
{
	*len_bytes = 0;
	if (id < 0 || id >= v->id_end || !v->entries[id].present)
		return NULL;
	*len_bytes = v->entries[id].len_bytes;
	return v->bytes.data + v->entries[id].offset;
}

/* 1 if `id` is a word with these bytes. */
static inline int vocab_is(const struct vocab *v, int64_t id, const char *bytes, size_t len_bytes)
{
	size_t own_bytes;
	const char *own = vocab_bytes(v, id, &own_bytes);

	return own && own_bytes == len_bytes && v->entries[id].kind == VOCAB_KIND_WORD &&
	       memcmp(own, bytes, len_bytes) == 0;
}

#endif
