/* Finds the place of a file's tensor in a model's table, also of one in another form than the table's. */
#include "model/file_ranges.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/family.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char index_mark[] = "%d";

int file_ranges_add(
        struct file_ranges *out, const struct model *model, int tensor, int64_t first, int64_t count)
{
	if (out->count == out->room) {
		int room = out->room ? 2 * out->room : 8;
		struct file_range *grown = mem_resize(out->range, (size_t)room, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		out->range = grown;
		out->room = room;
	}
	if (!out->count) {
		out->rank = model->tensors[tensor].rank;
		memcpy(out->shape, model->tensors[tensor].shape, sizeof(out->shape));
	}
	out->range[out->count++] = (struct file_range){tensor, first, count};
	return 0;
}

/* The name within its block; NULL: not a name of a block. */
static const char *within_block(const struct model *model, const char *name)
{
	const char *blocks = model->family->blocks ? model->family->blocks : "layers";
	size_t len = strlen(blocks);

	for (const char *at = name; (at = strstr(at, blocks)); at += len) {
		const char *digits = at + len + 1;
		size_t count = at[len] == '.' ? strspn(digits, "0123456789") : 0;

		if ((at == name || at[-1] == '.') && count && digits[count] == '.')
			return digits + count + 1;
	}
	return NULL;
}

/* 1 if the name is the pattern's; *index is the number in place of its mark, or 0. */
static int piece_is(int64_t *index, const char *pattern, const char *name)
{
	const char *mark = strstr(pattern, index_mark);
	size_t before = mark ? (size_t)(mark - pattern) : 0, count;

	*index = 0;
	if (!mark)
		return !strcmp(pattern, name);
	if (strncmp(pattern, name, before) != 0)
		return 0;
	name += before;
	count = strspn(name, "0123456789");
	if (!count || count > 9 || (*name == '0' && count > 1))
		return 0;
	*index = strtol(name, NULL, 10);
	return !strcmp(mark + strlen(index_mark), name + count);
}

/* The tensor of the table that stands at `place` of a block: the name up to `inside`, then that. */
int file_ranges_beside(const struct model *model, const char *name, const char *inside, const char *place)
{
	char *text = mem_printf("%.*s%s", (int)(inside - name), name, place);
	int tensor = text ? model_find_tensor(model, text) : ERR_NOMEM;

	mem_free(text);
	return tensor;
}

/* A piece of a tensor that the table has whole. */
static int find_piece(
        struct file_ranges *out, const struct model *model, const char *name, const char *inside)
{
	for (const struct family_split *s = model->family->splits; s && s->whole; s++) {
		int64_t index, outer, count;
		const struct model_tensor *t;
		int tensor, lost = strstr(s->piece, index_mark) != NULL, err;

		if (!piece_is(&index, s->piece, inside) ||
		        (tensor = file_ranges_beside(model, name, inside, s->whole)) < 0)
			continue;
		t = &model->tensors[tensor];
		outer = lost ? t->shape[0] : 1;
		if (t->rank <= lost || t->shape[lost] % s->parts)
			continue;
		if (index >= outer)
			return err_set(ERR_INPUT, "tensor %s: config.json gives only %" PRId64 " of them",
			        name, outer);
		count = t->count / (outer * s->parts);
		err = file_ranges_add(out, model, tensor, (index * s->parts + s->part) * count, count);
		if (err)
			return err;
		out->rank = t->rank - lost;
		for (int i = 0; i < MODEL_RANK_MAX; i++)
			out->shape[i] = i < out->rank ? t->shape[i + lost] : 1;
		out->shape[0] /= s->parts;
		return 0;
	}
	return 0;
}

/* The piece's tensor of the table, or -1. */
static int piece_of(const struct model *model, const char *name, const char *inside,
        const struct family_split *s, int64_t index)
{
	const char *mark = strstr(s->piece, index_mark);
	char *place = mark ? mem_printf("%.*s%lld%s", (int)(mark - s->piece), s->piece, (long long)index,
	                             mark + strlen(index_mark))
	                   : mem_strdup(s->piece);
	int tensor = place ? file_ranges_beside(model, name, inside, place) : -1;

	mem_free(place);
	return tensor;
}

/* A whole tensor of which the table has the pieces. */
static int find_whole(
        struct file_ranges *out, const struct model *model, const char *name, const char *inside)
{
	const struct family_split *splits = model->family->splits, *first = NULL;
	int64_t index = 0;
	int lost, err = 0;

	for (const struct family_split *s = splits; s && s->whole && !first; s++)
		if (!strcmp(s->whole, inside))
			first = s;
	if (!first)
		return 0;
	lost = strstr(first->piece, index_mark) != NULL;
	for (; !err && (!index || lost); index++) {
		int before = out->count;

		for (int part = 0; part < first->parts && !err; part++)
			for (const struct family_split *s = splits; s->whole && !err; s++) {
				int tensor = s->part == part && !strcmp(s->whole, inside)
				                     ? piece_of(model, name, inside, s, index)
				                     : -1;

				if (tensor >= 0)
					err = file_ranges_add(
					        out, model, tensor, 0, model->tensors[tensor].count);
			}
		if (out->count == before)
			break;
	}
	if (err || !out->count)
		return err;
	if (out->rank + lost > MODEL_RANK_MAX || out->count != index * first->parts) {
		out->count = 0; /* the table lacks some */
		return 0;
	}
	memmove(out->shape + lost, out->shape, (size_t)(MODEL_RANK_MAX - lost) * sizeof(*out->shape));
	out->rank += lost;
	out->shape[lost] *= first->parts;
	if (lost)
		out->shape[0] = index;
	return 0;
}

int model_find_ranges(struct file_ranges *out, const struct model *model, const char *name)
{
	int tensor = model_find_tensor(model, name), err;
	const char *inside;

	out->count = 0;
	out->is_buffer = tensor == MODEL_NAME_BUFFER;
	if (tensor >= 0)
		return file_ranges_add(out, model, tensor, 0, model->tensors[tensor].count);
	inside = out->is_buffer || !model->family || (!model->family->splits && !model->family->find_woven)
	                 ? NULL
	                 : within_block(model, name);
	if (!inside)
		return 0;
	err = find_piece(out, model, name, inside);
	if (!err && !out->count && model->family->find_woven)
		err = model->family->find_woven(out, model, name, inside);
	return err || out->count ? err : find_whole(out, model, name, inside);
}

const struct family_woven *family_woven_of(const struct model_family *family, enum tensor_role role)
{
	for (const struct family_woven *w = family ? family->woven : NULL; w && w->role != ROLE_COUNT; w++)
		if (w->role == role)
			return w;
	return NULL;
}

int model_woven_name(char **name, const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	const struct family_woven *w = family_woven_of(model->family, t->role);

	*name = NULL;
	if (!w || !w->file)
		return w != NULL;
	*name = mem_printf("%.*s%s", (int)(within_block(model, t->name) - t->name), t->name, w->file);
	return *name ? 1 : ERR_NOMEM;
}
