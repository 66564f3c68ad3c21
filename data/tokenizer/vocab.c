/* A hash table over the texts of a vocabulary, and an array by id. */
#include "data/tokenizer/vocab.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

#define OFFSET_MASK (((uint64_t)1 << 40) - 1) /* 2^22 entries of 2^14 bytes fit */

static uint32_t hash_bytes(const void *bytes, size_t len_bytes)
{
	const char *p = bytes;
	uint64_t h = 0x243f6a8885a308d3u ^ len_bytes, word;

	for (; len_bytes >= 8; len_bytes -= 8, p += 8) {
		memcpy(&word, p, 8);
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 32;
	}
	word = 0;
	memcpy(&word, p, len_bytes);
	h = (h ^ word) * 0x9e3779b97f4a7c15u;
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9u;
	return (uint32_t)(h >> 32);
}

/* The slot with these bytes, or the empty slot for them. */
static struct vocab_slot *find_slot(
        const struct vocab *v, uint32_t hash, const void *bytes, size_t len_bytes, unsigned kind)
{
	uint64_t mask = (uint64_t)v->slot_count - 1;

	for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
		struct vocab_slot *slot = &v->slots[i];

		if (slot->id < 0)
			return slot;
		if (slot->hash != hash)
			continue;
		const struct vocab_entry *e = &v->entries[slot->id];

		if (e->len_bytes == len_bytes && e->kind == kind &&
		        memcmp(v->bytes.data + e->offset, bytes, len_bytes) == 0)
			return slot;
	}
}

static int grow_slots(struct vocab *v)
{
	int64_t old_count = v->slot_count, count = old_count ? old_count * 2 : 1024;
	struct vocab_slot *old = v->slots, *slots = mem_alloc((size_t)count, sizeof(*slots));

	if (!slots)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++)
		slots[i].id = -1;
	for (int64_t i = 0; i < old_count; i++) {
		uint64_t at = old[i].hash & ((uint64_t)count - 1);

		if (old[i].id < 0)
			continue;
		while (slots[at].id >= 0)
			at = (at + 1) & ((uint64_t)count - 1);
		slots[at] = old[i];
	}
	v->slots = slots;
	v->slot_count = count;
	mem_free(old);
	return 0;
}

static int grow_entries(struct vocab *v, int64_t id)
{
	int64_t cap = id + id / 2 + 1024;
	struct vocab_entry *entries;

	if (id < v->cap)
		return 0;
	entries = mem_resize(v->entries, (size_t)cap, sizeof(*entries));
	if (!entries)
		return ERR_NOMEM;
	memset(entries + v->cap, 0, (size_t)(cap - v->cap) * sizeof(*entries));
	v->entries = entries;
	v->cap = cap;
	return 0;
}

int vocab_add(struct vocab *v, const char *content, size_t len_bytes, int64_t id, enum vocab_kind kind)
{
	char decoded[VOCAB_CONTENT_BYTES];
	const char *bytes = decoded;
	size_t bytes_len = 0;
	unsigned mark = kind;
	int shown = len_bytes < 80 ? (int)len_bytes : 80;

	if (id < 0 || id >= VOCAB_ID_END)
		return err_set(ERR_INPUT, "'%.*s' has id %" PRId64 "; ids go from 0 to %d", shown, content,
		        id, VOCAB_ID_END - 1);
	if (id < v->id_end && v->entries[id].present)
		return err_set(ERR_INPUT, "'%.*s' has id %" PRId64 ", which is also another entry's", shown,
		        content, id);
	if (len_bytes > VOCAB_CONTENT_BYTES)
		return err_set(ERR_INPUT, "'%.*s..' has %zu bytes; the limit is %d", shown, content,
		        len_bytes, VOCAB_CONTENT_BYTES);
	if (grow_entries(v, id) < 0 || (v->slot_used * 2 >= v->slot_count && grow_slots(v) < 0))
		return ERR_NOMEM;
	if (!v->in_bytes || !byte_level_decode(decoded, &bytes_len, content, len_bytes)) {
		mark |= v->in_bytes ? VOCAB_KIND_ODD : 0;
		bytes = content;
		bytes_len = len_bytes;
	}
	uint32_t hash = hash_bytes(bytes, bytes_len);
	struct vocab_slot *slot = find_slot(v, hash, bytes, bytes_len, mark);

	if (slot->id >= 0 && !(v->later_wins && kind == VOCAB_KIND_WORD))
		return err_set(ERR_INPUT, "'%.80s' occurs twice", content);
	v->entries[id] = (struct vocab_entry){.offset = v->bytes.len_bytes & OFFSET_MASK,
	        .kind = mark & 3,
	        .present = 1,
	        .len_bytes = (uint32_t)bytes_len};
	str_add_bytes(&v->bytes, bytes, bytes_len);
	*slot = (struct vocab_slot){.hash = hash, .id = (int32_t)id};
	v->slot_used++;
	if (bytes_len > v->longest_bytes)
		v->longest_bytes = bytes_len;
	v->entry_count++;
	if (id >= v->id_end)
		v->id_end = id + 1;
	return str_check(&v->bytes);
}

void vocab_free(struct vocab *v)
{
	mem_free(v->entries);
	mem_free(v->slots);
	str_free(&v->bytes);
	*v = (struct vocab){0};
}

int32_t vocab_find(const struct vocab *v, const void *bytes, size_t len_bytes)
{
	if (v->slot_count == 0)
		return -1;
	return find_slot(v, hash_bytes(bytes, len_bytes), bytes, len_bytes, VOCAB_KIND_WORD)->id;
}

int32_t vocab_find_content(const struct vocab *v, const char *content, size_t len_bytes)
{
	char decoded[VOCAB_CONTENT_BYTES];
	size_t decoded_bytes;

	if (v->slot_count == 0 || len_bytes > VOCAB_CONTENT_BYTES)
		return -1;
	int in_bytes = v->in_bytes && byte_level_decode(decoded, &decoded_bytes, content, len_bytes);
	unsigned odd = v->in_bytes && !in_bytes ? VOCAB_KIND_ODD : 0;
	const char *bytes = in_bytes ? decoded : content;
	size_t bytes_len = in_bytes ? decoded_bytes : len_bytes;
	uint32_t hash = hash_bytes(bytes, bytes_len);
	int32_t id = find_slot(v, hash, bytes, bytes_len, odd)->id;

	return id >= 0 ? id : find_slot(v, hash, bytes, bytes_len, odd | VOCAB_KIND_ADDED)->id;
}

/* With in_bytes, a content is not hashed as it is spelled, so it is looked up alone. */
void vocab_find_many(const struct vocab *v, struct vocab_query *queries, int count)
{
	uint64_t mask = (uint64_t)v->slot_count - 1;
	int first = v->in_bytes || !v->slot_count ? count : 0;

	for (int i = first; i < count; i++) {
		queries[i].hash =
		        queries[i].content ? hash_bytes(queries[i].content, queries[i].len_bytes) : 0;
		__builtin_prefetch(&v->slots[queries[i].hash & mask]);
	}
	for (int i = first; i < count; i++)
		if (v->slots[queries[i].hash & mask].id >= 0)
			__builtin_prefetch(&v->entries[v->slots[queries[i].hash & mask].id]);
	for (int i = first; i < count; i++) {
		int32_t id = v->slots[queries[i].hash & mask].id;

		if (id >= 0)
			__builtin_prefetch(v->bytes.data + v->entries[id].offset);
	}
	for (int i = 0; i < count; i++)
		if (queries[i].content)
			queries[i].id = vocab_find_content(v, queries[i].content, queries[i].len_bytes);
}

void vocab_content(const struct vocab *v, struct str *out, int64_t id)
{
	size_t len_bytes;
	const char *bytes = vocab_bytes(v, id, &len_bytes);

	if (!v->in_bytes || !bytes || (v->entries[id].kind & VOCAB_KIND_ODD)) {
		str_add_bytes(out, bytes, len_bytes);
		return;
	}
	for (size_t i = 0; i < len_bytes; i++) {
		char encoded[4];

		str_add_bytes(
		        out, encoded, (size_t)utf8_put(encoded, byte_level_char((unsigned char)bytes[i])));
	}
}

void vocab_byte_tokens(const struct vocab *v, int32_t ids[256])
{
	for (int byte = 0; byte < 256; byte++) {
		char content[8];
		int len = snprintf(content, sizeof(content), "<0x%02X>", (unsigned)byte);

		ids[byte] = vocab_find_content(v, content, (size_t)len);
	}
}
