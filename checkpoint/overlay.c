/* Reads each tensor from the source that has it. */
#include "checkpoint/overlay.h"

#include "base/err.h"
#include "base/mem.h"
#include "checkpoint/weights.h"

struct overlay {
	const struct plane_source *top;
	int (*has)(void *context, int tensor);
	struct hf_import *files;
	struct plane_source source;
};

static int overlay_floats(void *context, int tensor, int64_t first, int64_t count, float *dst)
{
	struct overlay *o = context;

	return o->has(o->top->context, tensor) ? weights_read(o->top, tensor, first, count, dst)
	                                       : hf_import_read(o->files, dst, tensor, first, count);
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
	o->source = (struct plane_source){.context = o, .floats = overlay_floats};
	err = hf_import_open(&o->files, dir, model);
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
	mem_free(o);
}
