/* Reads Thrift's compact protocol, never past the end of its bytes. */
#include "data/source/thrift.h"

enum { DEPTH_MAX = 32 };

static int fail(struct thrift *t)
{
	t->failed = 1;
	t->at = t->end;
	return 0;
}

static unsigned byte(struct thrift *t)
{
	if (t->at == t->end)
		return (unsigned)fail(t);
	return *t->at++;
}

uint64_t thrift_varint(struct thrift *t)
{
	uint64_t value = 0;

	for (int shift = 0; shift < 64; shift += 7) {
		unsigned b = byte(t);

		value |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return t->failed ? 0 : value;
	}
	return (uint64_t)fail(t);
}

int64_t thrift_zigzag(struct thrift *t)
{
	uint64_t u = thrift_varint(t);

	return (int64_t)(u >> 1) ^ -(int64_t)(u & 1);
}

int thrift_next(struct thrift *t, struct thrift_field *f)
{
	unsigned head = byte(t);

	if (t->failed || (head & 15) == THRIFT_STOP)
		return 0;
	if ((head & 15) > THRIFT_STRUCT)
		return fail(t);
	f->type = (enum thrift_type)(head & 15);
	f->id = head >> 4 ? f->id + (head >> 4) : thrift_zigzag(t);
	return !t->failed;
}

int64_t thrift_int(struct thrift *t, const struct thrift_field *f)
{
	if (f->type == THRIFT_I8)
		return (int8_t)byte(t);
	if (f->type < THRIFT_I16 || f->type > THRIFT_I64)
		return fail(t);
	return thrift_zigzag(t);
}

int thrift_bool(struct thrift *t, const struct thrift_field *f)
{
	if (f->type != THRIFT_TRUE && f->type != THRIFT_FALSE)
		return fail(t);
	return f->type == THRIFT_TRUE;
}

void thrift_binary(struct thrift *t, const struct thrift_field *f, const uint8_t **bytes, size_t *len_bytes)
{
	uint64_t len = f->type == THRIFT_BINARY ? thrift_varint(t) : 0;

	*bytes = t->at;
	*len_bytes = 0;
	if (f->type != THRIFT_BINARY || len > (uint64_t)(t->end - t->at)) {
		fail(t);
		return;
	}
	*len_bytes = (size_t)len;
	t->at += len;
}

/* Each element takes at least one byte, so a count above the number of bytes left is an error. */
static int64_t list_head(struct thrift *t, enum thrift_type *of)
{
	unsigned head = byte(t);
	uint64_t count = head >> 4 == 15 ? thrift_varint(t) : head >> 4;

	*of = (enum thrift_type)(head & 15);
	if (count > (uint64_t)(t->end - t->at))
		return fail(t);
	return (int64_t)count;
}

int64_t thrift_list(struct thrift *t, const struct thrift_field *f, enum thrift_type of)
{
	enum thrift_type found;
	int64_t count;

	if (f->type != THRIFT_LIST)
		return fail(t);
	count = list_head(t, &found);
	return count > 0 && found != of ? fail(t) : count;
}

static void skip(struct thrift *t, enum thrift_type type, int depth, int in_list);

static void skip_list(struct thrift *t, int depth)
{
	enum thrift_type of;
	int64_t count = list_head(t, &of);

	for (int64_t i = 0; i < count && !t->failed; i++)
		skip(t, of, depth + 1, 1);
}

static void skip_map(struct thrift *t, int depth)
{
	uint64_t count = thrift_varint(t);
	unsigned types = count ? byte(t) : 0;

	for (uint64_t i = 0; i < count && !t->failed; i++) {
		skip(t, (enum thrift_type)(types >> 4), depth + 1, 1);
		skip(t, (enum thrift_type)(types & 15), depth + 1, 1);
	}
}

static void skip_bytes(struct thrift *t, uint64_t len)
{
	if (len > (uint64_t)(t->end - t->at))
		fail(t);
	else
		t->at += len;
}

static void skip(struct thrift *t, enum thrift_type type, int depth, int in_list)
{
	struct thrift_field f = {0};

	if (depth > DEPTH_MAX) {
		fail(t);
		return;
	}
	switch (type) {
	case THRIFT_TRUE:
	case THRIFT_FALSE:
		if (in_list) /* for a field, the type is the value */
			byte(t);
		break;
	case THRIFT_I8:
		byte(t);
		break;
	case THRIFT_I16:
	case THRIFT_I32:
	case THRIFT_I64:
		thrift_varint(t);
		break;
	case THRIFT_DOUBLE:
		skip_bytes(t, 8);
		break;
	case THRIFT_BINARY:
		skip_bytes(t, thrift_varint(t));
		break;
	case THRIFT_LIST:
	case THRIFT_SET:
		skip_list(t, depth);
		break;
	case THRIFT_MAP:
		skip_map(t, depth);
		break;
	case THRIFT_STRUCT:
		while (thrift_next(t, &f))
			skip(t, f.type, depth + 1, 0);
		break;
	default:
		fail(t);
	}
}

void thrift_skip(struct thrift *t, enum thrift_type type)
{
	skip(t, type, 0, 0);
}
