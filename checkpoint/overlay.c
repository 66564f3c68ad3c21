/* Reads each tensor from the source that has it. */
#include "checkpoint/overlay.h"

#include "base/err.h"
#include "base/mem.h"

struct overlay {
	const struct plane_source *top;
	int (*has)(void *context, int tensor);
	struct hf_import *files;
	struct plane_source source;
	float *values; /* [PLANE_PIECE_COUNT] */
};

static int overlay_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct overlay *o = context;
	int err;

	if (o->has(o->top->context, tensor))
		return o->top->read(o->top->context, tensor, plane, first, count, dst);
	err = hf_import_read(o->files, o->values, tensor, first, count);
	for (int64_t i = 0; i < count && !err; i++)
		plane_put(dst, plane, i, o->values[i]);
	return err;
}

int overlay_open(struct overlay **overlay, const char *dir, struct model *model,
        const struct plane_source *top, int (*has)(void *context, int tensor))
{
	struct overlay *o = mem_alloc(1, sizeof(*o));
	int err;

	*overlay = o;
	if (!o)
		return ERR_NOMEM;
	o->top = top;
	o->has = has;
	o->source = (struct plane_source){.context = o, .read = overlay_read};
	o->values = mem_alloc(PLANE_PIECE_COUNT, sizeof(*o->values));
	err = o->values ? hf_import_open(&o->files, dir, model) : ERR_NOMEM;
	if (err) {
		overlay_close(o);
		*overlay = NULL;
	}
	return err;
}

const struct hf_import *overlay_import(const struct overlay *overlay)
{
	return overlay->files;
}

const struct plane_source *overlay_source(const struct overlay *overlay)
{
	return &overlay->source;
}

void overlay_close(struct overlay *o)
{
	if (!o)
		return;
	hf_import_close(o->files);
	mem_free(o->values);
	mem_free(o);
}
