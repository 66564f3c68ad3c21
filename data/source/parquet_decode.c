/* Decodes values and levels of Parquet pages. */
#include "data/source/parquet.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "data/source/thrift.h"

enum { EXPANDED_BYTES_MAX = 1 << 30 };

static int damaged(const char *what)
{
	return err_set(ERR_INPUT, "a page is damaged: %s", what);
}

static uint64_t little_endian(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

/* `bits` bits (at most 64) from bit `first` on, low bits first. The caller checks that they exist. */
static uint64_t bits_at(const uint8_t *at, uint64_t first, int bits)
{
	uint64_t value = 0;

	for (int done = 0; done < bits;) {
		int in_byte = (int)((first + (uint64_t)done) % 8);
		int take = 8 - in_byte < bits - done ? 8 - in_byte : bits - done;

		value |= (uint64_t)(at[(first + (uint64_t)done) / 8] >> in_byte & ((1u << take) - 1)) << done;
		done += take;
	}
	return value;
}

int parquet_decode_rle(uint32_t *out, int64_t count, int bits, const uint8_t **at, const uint8_t *end)
{
	struct thrift t = {.at = *at, .end = end};
	int value_bytes = (bits + 7) / 8;

	if (bits == 0) { /* every value is 0; the bytes hold nothing */
		memset(out, 0, (size_t)count * sizeof(*out));
		return 0;
	}
	for (int64_t done = 0; done < count;) {
		uint64_t head = thrift_varint(&t), n = head >> 1;

		if (t.failed || n == 0)
			return damaged("its runs end too early");
		if (head & 1) { /* packed groups of eight; the last may be cut off after the last value */
			uint64_t left = (uint64_t)(t.end - t.at),
			         have = n > left / (uint64_t)bits ? left : n * (uint64_t)bits;
			uint64_t values = have * 8 / (uint64_t)bits;

			for (uint64_t i = 0; i < values && done < count; i++)
				out[done++] = (uint32_t)bits_at(t.at, i * (uint64_t)bits, bits);
			if (done < count && have < n * (uint64_t)bits)
				return damaged("its runs end too early");
			t.at += have;
		} else {
			uint32_t value;

			if (t.end - t.at < value_bytes)
				return damaged("its runs end too early");
			value = (uint32_t)little_endian(t.at, value_bytes);
			t.at += value_bytes;
			for (uint64_t i = 0; i < n && done < count; i++)
				out[done++] = value;
		}
	}
	*at = t.at;
	return 0;
}

/* Bytes of a plain value of fixed length; 0 for byte arrays and booleans, which have none. */
static int fixed_bytes(const struct parquet_node *leaf)
{
	static const int bytes[PARQUET_TYPE_COUNT] = {0, 4, 8, 12, 4, 8, 0, 0};

	return leaf->type == PARQUET_FIXED ? leaf->type_bytes : bytes[leaf->type];
}

static void plain_value(union parquet_value *v, const struct parquet_node *leaf, const uint8_t *at)
{
	uint64_t bits;

	switch (leaf->type) {
	case PARQUET_INT32:
		v->i = leaf->meaning == PARQUET_MEANING_UNSIGNED ? (int64_t)little_endian(at, 4)
		                                                 : (int32_t)little_endian(at, 4);
		break;
	case PARQUET_INT64:
		v->i = (int64_t)little_endian(at, 8);
		break;
	case PARQUET_FLOAT:
		v->d = (double)f32_from_bits((uint32_t)little_endian(at, 4));
		break;
	case PARQUET_DOUBLE:
		bits = little_endian(at, 8);
		memcpy(&v->d, &bits, 8);
		break;
	default:
		v->bytes.data = at;
		v->bytes.len_bytes = (uint32_t)fixed_bytes(leaf);
	}
}

static int decode_plain(union parquet_value *out, int64_t count, const struct parquet_node *leaf,
        const uint8_t *at, const uint8_t *end)
{
	int fixed = fixed_bytes(leaf);

	if (leaf->type == PARQUET_BOOLEAN) {
		if ((count + 7) / 8 > end - at)
			return damaged("it has fewer values than it says");
		for (int64_t i = 0; i < count; i++)
			out[i].i = at[i / 8] >> (i % 8) & 1;
		return 0;
	}
	if (fixed || leaf->type == PARQUET_FIXED) {
		if (count > 0 && fixed > 0 && count > (end - at) / fixed)
			return damaged("it has fewer values than it says");
		for (int64_t i = 0; i < count; i++)
			plain_value(&out[i], leaf, at + i * fixed);
		return 0;
	}
	for (int64_t i = 0; i < count; i++) {
		uint32_t len;

		if (end - at < 4 || (len = (uint32_t)little_endian(at, 4)) > (uint64_t)(end - at - 4))
			return damaged("a value extends past its end");
		out[i].bytes.data = at + 4;
		out[i].bytes.len_bytes = len;
		at += 4 + (int64_t)len;
	}
	return 0;
}

static int decode_dictionary(union parquet_value *out, int64_t count, const uint8_t *at, const uint8_t *end,
        const union parquet_value *dictionary, int64_t dictionary_count)
{
	uint32_t *index;
	int rc = 0, bits;

	if (count == 0)
		return 0;
	if (!dictionary)
		return damaged("it refers to a missing dictionary");
	if (at == end || (bits = *at++) > 32)
		return damaged("its bit width is invalid");
	index = mem_alloc((size_t)count, sizeof(*index));
	if (!index)
		return ERR_NOMEM;
	rc = parquet_decode_rle(index, count, bits, &at, end);
	for (int64_t i = 0; rc == 0 && i < count; i++)
		if (index[i] < dictionary_count)
			out[i] = dictionary[index[i]];
		else
			rc = damaged("it refers past the end of its dictionary");
	mem_free(index);
	return rc;
}

/* DELTA_BINARY_PACKED: decodes count numbers into out[].i; *at moves past them. The page may hold more
 * numbers than count, not fewer. */
static int decode_delta(union parquet_value *out, int64_t count, const uint8_t **at, const uint8_t *end)
{
	struct thrift t = {.at = *at, .end = end};
	uint64_t block = thrift_varint(&t), minis = thrift_varint(&t), total = thrift_varint(&t);
	uint64_t value = (uint64_t)thrift_zigzag(&t), mini_values, done = 0;

	if (t.failed || block == 0 || block % 128 || minis == 0 || minis > 512 || block > 1 << 20 ||
	        block % minis || (block / minis) % 32 || total < (uint64_t)count)
		return damaged("the header of its deltas is invalid");
	mini_values = block / minis;
	if (count > 0)
		out[done++].i = (int64_t)value;
	while (done < total && !t.failed) {
		uint64_t least = (uint64_t)thrift_zigzag(&t);
		const uint8_t *widths = t.at;

		if ((uint64_t)(t.end - t.at) < minis)
			return damaged("its deltas end too early");
		t.at += minis;
		for (uint64_t m = 0; m < minis && done < total; m++) {
			uint64_t bytes = mini_values / 8 * widths[m];

			if (widths[m] > 64 || bytes > (uint64_t)(t.end - t.at))
				return damaged("its deltas end too early");
			for (uint64_t i = 0; i < mini_values && done < total; i++, done++) {
				value += least + bits_at(t.at, i * widths[m], widths[m]);
				if (done < (uint64_t)count)
					out[done].i = (int64_t)value;
			}
			t.at += bytes;
		}
	}
	*at = t.at;
	return t.failed ? damaged("its deltas end too early") : 0;
}

/* DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes. *at moves past them. */
static int decode_delta_length(
        union parquet_value *out, int64_t count, const uint8_t **at, const uint8_t *end)
{
	int rc = decode_delta(out, count, at, end);

	for (int64_t i = 0; rc == 0 && i < count; i++) {
		int64_t len = out[i].i;

		if (len < 0 || len > end - *at)
			return damaged("a value extends past its end");
		out[i].bytes.data = *at;
		out[i].bytes.len_bytes = (uint32_t)len;
		*at += len;
	}
	return rc;
}

/* DELTA_BYTE_ARRAY: the length of the prefix that each value shares with the one before, then the rest of
 * each. */
static int decode_delta_bytes(
        union parquet_value *out, int64_t count, const uint8_t *at, const uint8_t *end, uint8_t **extra)
{
	union parquet_value *shared = mem_alloc((size_t)count, sizeof(*shared));
	int64_t total = 0, last_len = 0;
	uint8_t *to;
	int rc = shared ? decode_delta(shared, count, &at, end) : ERR_NOMEM;

	if (rc == 0)
		rc = decode_delta_length(out, count, &at, end);
	for (int64_t i = 0; rc == 0 && i < count; i++) {
		if (shared[i].i < 0 || shared[i].i > last_len)
			rc = damaged("a value shares a longer prefix than exists");
		last_len = shared[i].i + out[i].bytes.len_bytes;
		total += last_len;
		if (rc == 0 && total > EXPANDED_BYTES_MAX)
			rc = err_set(ERR_UNSUPPORTED, "a page of more than 1 GiB of text is not supported");
	}
	if (rc == 0 && !(*extra = mem_alloc((size_t)total, 1)))
		rc = ERR_NOMEM;
	to = *extra;
	for (int64_t i = 0; rc == 0 && i < count; i++) {
		size_t same = (size_t)shared[i].i, rest = out[i].bytes.len_bytes;

		if (same)
			memcpy(to, out[i - 1].bytes.data, same);
		memcpy(to + same, out[i].bytes.data, rest);
		out[i].bytes.data = to;
		out[i].bytes.len_bytes = (uint32_t)(same + rest);
		to += same + rest;
	}
	mem_free(shared);
	return rc;
}

/* BYTE_STREAM_SPLIT: the first bytes of all values, then the second bytes ... */
static int decode_stream_split(union parquet_value *out, int64_t count, const struct parquet_node *leaf,
        const uint8_t *at, const uint8_t *end, uint8_t **extra)
{
	int bytes = fixed_bytes(leaf);

	if (bytes == 0 || count > (end - at) / bytes)
		return damaged("it has fewer values than it says");
	*extra = mem_alloc((size_t)(count * bytes), 1);
	if (!*extra)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++)
		for (int b = 0; b < bytes; b++)
			(*extra)[i * bytes + b] = at[b * count + i];
	for (int64_t i = 0; i < count; i++)
		plain_value(&out[i], leaf, *extra + i * bytes);
	return 0;
}

/* Decodes booleans as runs, after their length. */
static int decode_rle_values(union parquet_value *out, int64_t count, const uint8_t *at, const uint8_t *end)
{
	uint32_t *bits;
	int rc;

	if (end - at < 4 || little_endian(at, 4) > (uint64_t)(end - at - 4))
		return damaged("its runs end too early");
	at += 4;
	bits = mem_alloc((size_t)count, sizeof(*bits));
	rc = bits ? parquet_decode_rle(bits, count, 1, &at, end) : ERR_NOMEM;
	for (int64_t i = 0; rc == 0 && i < count; i++)
		out[i].i = bits[i] & 1;
	mem_free(bits);
	return rc;
}

static int is_bytes(const struct parquet_node *leaf)
{
	return leaf->type == PARQUET_BYTE_ARRAY || leaf->type == PARQUET_FIXED;
}

int parquet_decode_values(union parquet_value *out, int64_t count, int encoding,
        const struct parquet_node *leaf, const uint8_t *at, const uint8_t *end,
        const union parquet_value *dictionary, int64_t dictionary_count, uint8_t **extra)
{
	*extra = NULL;
	if (count == 0)
		return 0;
	switch (encoding) {
	case PARQUET_PLAIN:
		return decode_plain(out, count, leaf, at, end);
	case PARQUET_PLAIN_DICTIONARY:
	case PARQUET_RLE_DICTIONARY:
		return decode_dictionary(out, count, at, end, dictionary, dictionary_count);
	case PARQUET_RLE:
		if (leaf->type == PARQUET_BOOLEAN)
			return decode_rle_values(out, count, at, end);
		break;
	case PARQUET_DELTA_INT:
		if (leaf->type == PARQUET_INT32 || leaf->type == PARQUET_INT64) {
			int rc = decode_delta(out, count, &at, end);

			for (int64_t i = 0; i < count && leaf->type == PARQUET_INT32; i++)
				out[i].i = leaf->meaning == PARQUET_MEANING_UNSIGNED
				                   ? (int64_t)(uint32_t)out[i].i
				                   : (int32_t)out[i].i;
			return rc;
		}
		break;
	case PARQUET_DELTA_LENGTH:
		if (leaf->type == PARQUET_BYTE_ARRAY)
			return decode_delta_length(out, count, &at, end);
		break;
	case PARQUET_DELTA_BYTES:
		if (is_bytes(leaf))
			return decode_delta_bytes(out, count, at, end, extra);
		break;
	case PARQUET_STREAM_SPLIT:
		return decode_stream_split(out, count, leaf, at, end, extra);
	default:
		break;
	}
	return err_set(ERR_UNSUPPORTED, "values of type %d in encoding %d are not supported", (int)leaf->type,
	        encoding);
}
