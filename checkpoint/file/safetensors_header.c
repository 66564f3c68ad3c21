/* Scans the header of a safetensors file and checks every bound. */
#include "checkpoint/file/safetensors_header.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <inttypes.h>
#include <string.h>

struct scan {
	struct safetensors *file;
	char *at, *end;
	int64_t tensor_cap, metadata_cap;
};

int safetensors_header_fail(const struct safetensors *file, const char *place, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_setv(ERR_INPUT, fmt, ap);
	va_end(ap);
	return err_note(ERR_INPUT, "%s: byte %td", file->path, 8 + (place - file->header));
}

#define fail(scan, ...) safetensors_header_fail((scan)->file, (scan)->at, __VA_ARGS__)

static void skip_space(struct scan *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
		s->at++;
}

/* Fails with the text at the scanner and the expected one. */
static int fail_wanted(struct scan *s, const char *wanted)
{
	unsigned char c;

	if (s->at == s->end)
		return fail(s, "the header ends; expected %s", wanted);
	c = (unsigned char)*s->at;
	if (c > ' ' && c < 127)
		return fail(s, "found '%c'; expected %s", c, wanted);
	return fail(s, "found byte 0x%02x; expected %s", c, wanted);
}

/* Moves past white space and `c`. */
static int take(struct scan *s, char c, const char *wanted)
{
	skip_space(s);
	if (s->at == s->end || *s->at != c)
		return fail_wanted(s, wanted);
	s->at++;
	return 0;
}

/* Moves past `c` if it is next. Returns whether it was. */
static int peek(struct scan *s, char c)
{
	skip_space(s);
	if (s->at == s->end || *s->at != c)
		return 0;
	s->at++;
	return 1;
}

/* Length of the UTF-8 sequence at `at`; 0 if it is invalid (overlong, surrogate, above U+10FFFF, cut). */
static int utf8_length(const char *at, const char *end)
{
	const unsigned char *u = (const unsigned char *)at;
	ptrdiff_t room = end - at;

	if (u[0] < 0x80)
		return 1;
	if (u[0] >= 0xc2 && u[0] <= 0xdf)
		return room >= 2 && (u[1] & 0xc0) == 0x80 ? 2 : 0;
	if (u[0] >= 0xe0 && u[0] <= 0xef) {
		if (room < 3 || (u[1] & 0xc0) != 0x80 || (u[2] & 0xc0) != 0x80)
			return 0;
		return (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ? 0 : 3;
	}
	if (u[0] >= 0xf0 && u[0] <= 0xf4) {
		if (room < 4 || (u[1] & 0xc0) != 0x80 || (u[2] & 0xc0) != 0x80 || (u[3] & 0xc0) != 0x80)
			return 0;
		return (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f) ? 0 : 4;
	}
	return 0;
}

/* The value of four hex digits at the scanner, or -1. */
static int32_t take_hex4(struct scan *s)
{
	int32_t value = 0;

	if (s->end - s->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = s->at[i];
		int digit = c >= '0' && c <= '9'   ? c - '0'
		            : c >= 'a' && c <= 'f' ? c - 'a' + 10
		            : c >= 'A' && c <= 'F' ? c - 'A' + 10
		                                   : -1;

		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	s->at += 4;
	return value;
}

static char *put_utf8(char *out, int32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 63));
		*out++ = (char)(0x80 | (c & 63));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 63));
		*out++ = (char)(0x80 | (c >> 6 & 63));
		*out++ = (char)(0x80 | (c & 63));
	}
	return out;
}

/* Decodes an escape after its backslash. Works in place, because an escape is never shorter than its
 * bytes. */
static int take_escape(struct scan *s, char **out)
{
	static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const char *letter;
	int32_t c, low;

	if (s->at == s->end)
		return fail(s, "the header ends inside a string");
	letter = *s->at ? strchr(letters, *s->at) : NULL;
	if (letter) {
		s->at++;
		*(*out)++ = values[letter - letters];
		return 0;
	}
	if (*s->at != 'u')
		return fail(s, "an unknown escape in a string");
	s->at++;
	c = take_hex4(s);
	if (c < 0)
		return fail(s, "\\u without four hex digits");
	if (!c)
		return fail(s, "a string holds NUL");
	if (c >= 0xd800 && c <= 0xdfff) {
		if (c >= 0xdc00 || s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
			return fail(s, "half of a surrogate pair");
		s->at += 2;
		low = take_hex4(s);
		if (low < 0xdc00 || low > 0xdfff)
			return fail(s, "half of a surrogate pair");
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	*out = put_utf8(*out, c);
	return 0;
}

/* Decodes a string in place and ends it with NUL. */
static int take_string(struct scan *s, char **text, const char *wanted)
{
	char *out;
	int err = take(s, '"', wanted);

	if (err)
		return err;
	*text = out = s->at;
	while (s->at < s->end && *s->at != '"') {
		unsigned char c = (unsigned char)*s->at;
		int len;

		if (c < 0x20)
			return fail(s, "a control character (0x%02x) inside a string", c);
		if (c == '\\') {
			s->at++;
			err = take_escape(s, &out);
			if (err)
				return err;
			continue;
		}
		len = utf8_length(s->at, s->end);
		if (!len)
			return fail(s, "the header is not UTF-8 (0x%02x)", c);
		if (out != s->at) /* they differ only after an escape */
			memmove(out, s->at, (size_t)len);
		out += len;
		s->at += len;
	}
	if (s->at == s->end)
		return fail(s, "the header ends inside a string");
	s->at++;
	*out = 0;
	return 0;
}

/* Reads plain digits: a JSON integer from 0 to the maximum of int64. */
static int take_integer(struct scan *s, int64_t *out, const char *wanted)
{
	const char *first;
	int64_t value = 0;

	skip_space(s);
	first = s->at;
	if (s->at < s->end && *s->at == '-')
		return fail(s, "a negative number; expected %s", wanted);
	for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		        __builtin_add_overflow(value, *s->at - '0', &value))
			return fail(s, "a number above 2^63 - 1; expected %s", wanted);
	}
	if (s->at == first)
		return fail_wanted(s, wanted);
	if (*first == '0' && s->at - first > 1)
		return fail(s, "a number with a leading zero");
	if (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E'))
		return fail(s, "a number with a fraction or exponent; expected %s", wanted);
	*out = value;
	return 0;
}

static int take_shape(struct scan *s, struct safetensors_tensor *tensor)
{
	int err = take(s, '[', "the list of a shape");

	if (err || peek(s, ']'))
		return err;
	do {
		if (tensor->rank == SAFETENSORS_RANK_MAX)
			return fail(s, "a shape of more than %d dimensions", SAFETENSORS_RANK_MAX);
		err = take_integer(s, &tensor->shape[tensor->rank++], "a dimension");
		if (err)
			return err;
	} while (peek(s, ','));
	return take(s, ']', "',' or ']' of a shape");
}

static int take_offsets(struct scan *s, struct safetensors_tensor *tensor)
{
	int64_t begin = 0, end = 0;
	int err = take(s, '[', "the list of data_offsets");

	if (!err)
		err = take_integer(s, &begin, "the first of data_offsets");
	if (!err)
		err = take(s, ',', "',' between two data_offsets");
	if (!err)
		err = take_integer(s, &end, "the second of data_offsets");
	if (!err)
		err = take(s, ']', "']' after two data_offsets");
	if (err)
		return err;
	if (end < begin)
		return fail(s, "data_offsets end at %" PRId64 ", before they begin at %" PRId64, end, begin);
	tensor->begin_bytes = begin;
	tensor->len_bytes = end - begin;
	return 0;
}

static int take_dtype(struct scan *s, struct safetensors_tensor *tensor)
{
	enum dtype dtype;
	char *text;
	int err = take_string(s, &text, "the string of a dtype");

	if (err)
		return err;
	if (dtype_find(&dtype, text)) {
		tensor->dtype = (enum safetensors_dtype)dtype;
		return 0;
	}
	return safetensors_header_fail(
	        s->file, text, "unknown dtype \"%s\"", safetensors_name_show(text).text);
}

/* Checks that the bytes of dtype and shape equal the offsets' range. */
static int check_size(struct scan *s, struct safetensors_tensor *tensor)
{
	struct safetensors_name_text name = safetensors_name_show(tensor->name);
	uint64_t count = 1, bits;

	for (int i = 0; i < tensor->rank; i++) {
		if (size_mul(&count, count, (uint64_t)tensor->shape[i]))
			return safetensors_header_fail(s->file, tensor->name,
			        "tensor \"%s\": the product of shape %s does not fit 64 bits", name.text,
			        safetensors_shape_show(tensor->shape, tensor->rank).text);
	}
	if (size_mul(&bits, count, (uint64_t)safetensors_dtype_bits(tensor->dtype)))
		return safetensors_header_fail(s->file, tensor->name,
		        "tensor \"%s\": the bits of shape %s do not fit 64 bits", name.text,
		        safetensors_shape_show(tensor->shape, tensor->rank).text);
	if (bits % 8)
		return safetensors_header_fail(s->file, tensor->name,
		        "tensor \"%s\": %" PRIu64 " elements of %s do not fill whole bytes", name.text, count,
		        safetensors_dtype_name(tensor->dtype));
	if (bits / 8 != (uint64_t)tensor->len_bytes)
		return safetensors_header_fail(s->file, tensor->name,
		        "tensor \"%s\": %s of shape %s takes %" PRIu64 " bytes, data_offsets give %" PRId64,
		        name.text, safetensors_dtype_name(tensor->dtype),
		        safetensors_shape_show(tensor->shape, tensor->rank).text, bits / 8,
		        tensor->len_bytes);
	tensor->count = (int64_t)count;
	return 0;
}

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4 };

static int take_field(struct scan *s, struct safetensors_tensor *tensor, int *fields)
{
	char *key;
	int field, err = take_string(s, &key, "a field's name");

	if (err)
		return err;
	field = !strcmp(key, "dtype")          ? FIELD_DTYPE
	        : !strcmp(key, "shape")        ? FIELD_SHAPE
	        : !strcmp(key, "data_offsets") ? FIELD_OFFSETS
	                                       : 0;
	if (!field)
		return safetensors_header_fail(s->file, key, "unknown field \"%s\" of tensor \"%s\"",
		        safetensors_name_show(key).text, safetensors_name_show(tensor->name).text);
	if (*fields & field)
		return safetensors_header_fail(s->file, key, "field \"%s\" of tensor \"%s\" appears twice",
		        key, safetensors_name_show(tensor->name).text);
	*fields |= field;
	err = take(s, ':', "':' after a field's name");
	if (err)
		return err;
	return field == FIELD_DTYPE   ? take_dtype(s, tensor)
	       : field == FIELD_SHAPE ? take_shape(s, tensor)
	                              : take_offsets(s, tensor);
}

static int take_tensor(struct scan *s, const char *name)
{
	struct safetensors_tensor tensor = {.name = name};
	int err, fields = 0;

	if (strlen(name) > SAFETENSORS_NAME_MAX_BYTES)
		return safetensors_header_fail(
		        s->file, name, "a tensor's name of more than %d bytes", SAFETENSORS_NAME_MAX_BYTES);
	err = take(s, '{', "the object of a tensor");
	if (!err && !peek(s, '}')) {
		do
			err = take_field(s, &tensor, &fields);
		while (!err && peek(s, ','));
		if (!err)
			err = take(s, '}', "',' or '}' in a tensor's object");
	}
	if (err)
		return err;
	if (fields != (FIELD_DTYPE | FIELD_SHAPE | FIELD_OFFSETS))
		return fail(s, "tensor \"%s\" has no %s", safetensors_name_show(name).text,
		        !(fields & FIELD_DTYPE)   ? "dtype"
		        : !(fields & FIELD_SHAPE) ? "shape"
		                                  : "data_offsets");
	err = check_size(s, &tensor);
	if (err)
		return err;
	if (s->file->tensor_count == s->tensor_cap) {
		int64_t cap = s->tensor_cap ? s->tensor_cap + s->tensor_cap / 2 : 64;
		struct safetensors_tensor *grown = mem_resize(s->file->tensors, (size_t)cap, sizeof(*grown));

		if (!grown)
			return err_note(ERR_NOMEM, "%s", s->file->path);
		s->file->tensors = grown;
		s->tensor_cap = cap;
	}
	s->file->tensors[s->file->tensor_count++] = tensor;
	return 0;
}

static int take_metadata_pair(struct scan *s)
{
	struct safetensors *file = s->file;
	char *key, *value;
	int err = take_string(s, &key, "a key of __metadata__");

	if (!err)
		err = take(s, ':', "':' in __metadata__");
	if (!err)
		err = take_string(s, &value, "a string as value in __metadata__");
	if (err)
		return err;
	if (file->metadata_count == s->metadata_cap) {
		int64_t cap = s->metadata_cap ? s->metadata_cap + s->metadata_cap / 2 : 8;
		struct safetensors_text *grown = mem_resize(file->metadata, (size_t)cap, sizeof(*grown));

		if (!grown)
			return err_note(ERR_NOMEM, "%s", file->path);
		file->metadata = grown;
		s->metadata_cap = cap;
	}
	file->metadata[file->metadata_count++] = (struct safetensors_text){key, value};
	return 0;
}

static int take_metadata(struct scan *s)
{
	int err = take(s, '{', "the object of __metadata__");

	if (err || peek(s, '}'))
		return err;
	do
		err = take_metadata_pair(s);
	while (!err && peek(s, ','));
	return err ? err : take(s, '}', "',' or '}' in __metadata__");
}

static int take_entry(struct scan *s, int *metadata_seen)
{
	char *name;
	int err = take_string(s, &name, "a tensor's name");

	if (!err)
		err = take(s, ':', "':' after a tensor's name");
	if (err)
		return err;
	if (strcmp(name, "__metadata__"))
		return take_tensor(s, name);
	if (*metadata_seen)
		return safetensors_header_fail(s->file, name, "__metadata__ appears twice");
	*metadata_seen = 1;
	return take_metadata(s);
}

int safetensors_header_scan(struct safetensors *file)
{
	struct scan s = {.file = file, .at = file->header, .end = file->header + file->header_bytes};
	int metadata_seen = 0, err;

	err = take(&s, '{', "the header's JSON object");
	if (err)
		return err;
	if (!peek(&s, '}')) {
		do
			err = take_entry(&s, &metadata_seen);
		while (!err && peek(&s, ','));
		if (!err)
			err = take(&s, '}', "',' or '}' after a tensor");
		if (err)
			return err;
	}
	skip_space(&s);
	if (s.at != s.end)
		return fail_wanted(&s, "the end of the header");
	return 0;
}
