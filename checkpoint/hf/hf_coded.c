/* Finds quantized weights in HuggingFace files, and checks that their tensors fit each other. */
#include "checkpoint/hf/hf_coded.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STATE_BYTES_MAX = 1 << 16, NAME_MAX_BYTES = SAFETENSORS_NAME_MAX_BYTES + 64 };

/* Maps differ by the rounding of fp32 operations in another order. */
static const float nested_map_slack = 1e-4F;

/* ---- places ---- */

/* A tensor by its name: a prefix and what follows. */
static struct hf_place place_find(const struct hf_dir *dir, const char *prefix, int len, const char *rest)
{
	char name[NAME_MAX_BYTES];

	snprintf(name, sizeof(name), "%.*s%s", len, prefix, rest);
	for (int f = 0; f < dir->file_count; f++) {
		const struct safetensors_tensor *t = safetensors_find(dir->files[f], name);

		if (t)
			return (struct hf_place){dir->files[f], t};
	}
	return (struct hf_place){0};
}

static int fail(const struct hf_place *at, const char *what)
{
	return err_set(ERR_INPUT, "%s: tensor \"%s\" %s", at->file->path,
	        safetensors_name_show(at->tensor->name).text, what);
}

static int fail_shape(const struct hf_place *at, int64_t wanted, const char *of)
{
	return err_set(ERR_INPUT, "%s: tensor \"%s\" has shape %s, %" PRId64 " elements; %s has %" PRId64,
	        at->file->path, safetensors_name_show(at->tensor->name).text,
	        safetensors_shape_show(at->tensor->shape, at->tensor->rank).text, at->tensor->count, of,
	        wanted);
}

static int missing(const struct hf_place *beside, const char *rest)
{
	return err_set(ERR_INPUT, "%s: tensor \"%s\" needs one that ends in %s, and none is there",
	        beside->file->path, safetensors_name_show(beside->tensor->name).text, rest);
}

static int read_place(const struct hf_place *at, void *dst)
{
	return safetensors_read(at->file, at->tensor, dst, 0, at->tensor->len_bytes);
}

/* ---- bitsandbytes, 4 bits ---- */

int hf_quant_state_parse(struct hf_quant_state *s, const char *where, const char *text, size_t len_bytes)
{
	json_t *root = NULL, *shape = NULL;
	const char *type = NULL;
	double offset = 0;
	int64_t nested = NESTED_BLOCK;
	int rc = json_parse(&root, where, text, len_bytes), found = 0;

	*s = (struct hf_quant_state){0};
	if (!rc && !json_is_object(root))
		rc = err_set(ERR_INPUT, "%s is no JSON object", where);
	if (!rc)
		rc = json_get_str(root, where, "quant_type", &type) < 0 ? ERR_INPUT : 0;
	if (!rc && (!type || (strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0)))
		rc = err_set(ERR_UNSUPPORTED, "%s: quant_type is %.20s; supported: nf4, fp4", where,
		        type ? type : "missing");
	if (!rc)
		rc = json_get_int(root, where, "blocksize", &s->block) < 0 ||
		                     json_get_int(root, where, "nested_blocksize", &nested) < 0 ||
		                     json_get_array(root, where, "shape", &shape) < 0
		             ? ERR_INPUT
		             : 0;
	if (!rc) {
		found = json_get_num(root, where, "nested_offset", &offset);
		rc = found < 0 ? ERR_INPUT : 0;
	}
	for (int i = 0; i < 2 && !rc; i++) {
		s->shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
		if (json_array_size(shape) != 2 || s->shape[i] <= 0 || s->shape[i] > INT32_MAX)
			rc = err_set(ERR_INPUT, "%s: shape is not two sizes", where);
	}
	if (!rc && (s->block < 32 || s->block > 4096 || (s->block & (s->block - 1))))
		rc = err_set(ERR_INPUT, "%s: blocksize is %" PRId64 "; supported: 32, 64, 128, ... 4096",
		        where, s->block);
	if (!rc && nested != NESTED_BLOCK)
		rc = err_set(ERR_UNSUPPORTED, "%s: nested_blocksize is %" PRId64 "; supported: 256", where,
		        nested);
	if (!rc && !isfinite((float)offset))
		rc = err_set(ERR_INPUT, "%s: nested_offset is no number", where);
	if (!rc && offset < 0)
		rc = err_set(ERR_INPUT, "%s: nested_offset is %g; a mean of magnitudes is not negative",
		        where, offset);
	if (!rc) {
		s->code = !strcmp(type, "nf4") ? CODE_NF4 : CODE_FP4;
		s->is_nested = found > 0;
		s->offset = (float)offset;
	}
	json_decref(root);
	return rc;
}

static int state_read(struct hf_quant_state *s, const struct hf_place *at)
{
	struct str where = {0};
	char *text = NULL;
	int rc;

	if (at->tensor->dtype != SAFETENSORS_U8 || at->tensor->len_bytes > STATE_BYTES_MAX)
		return fail(at, "is no JSON of bitsandbytes");
	str_printf(&where, "%s: tensor \"%s\"", at->file->path, safetensors_name_show(at->tensor->name).text);
	text = mem_alloc((size_t)at->tensor->len_bytes + 1, 1);
	rc = text && where.data ? read_place(at, text) : ERR_NOMEM;
	if (!rc)
		rc = hf_quant_state_parse(s, where.data, text, (size_t)at->tensor->len_bytes);
	mem_free(text);
	str_free(&where);
	return rc;
}

/* Checks a table of the files against the one that EXPAND has. *differs: it is another. */
static int table_check(const struct hf_place *at, const float *want, float *got, int64_t count, int *differs)
{
	int rc;

	if (at->tensor->dtype != SAFETENSORS_F32 || at->tensor->count != count)
		return fail_shape(at, count, "the table of its codes");
	rc = read_place(at, got);
	for (int64_t i = 0; i < count && !rc; i++)
		if (!isfinite(got[i]))
			rc = fail(at, "has values that are no numbers");
	*differs = !rc && memcmp(got, want, (size_t)count * sizeof(*want)) != 0;
	return rc;
}

static int nested_find(
        struct hf_coded *c, const struct hf_dir *dir, const char *name, int len, int64_t scales)
{
	struct hf_place table = place_find(dir, name, len, ".nested_quant_map");
	float got[256];
	int differs = 0, rc;

	c->outer = place_find(dir, name, len, ".nested_absmax");
	if (!c->outer.tensor)
		return missing(&c->scales, ".nested_absmax");
	if (!table.tensor)
		return missing(&c->scales, ".nested_quant_map");
	if (c->scales.tensor->dtype != SAFETENSORS_U8)
		return fail(&c->scales, "is not U8, and its quant_state has nested_offset");
	if (c->outer.tensor->dtype != SAFETENSORS_F32 ||
	        c->outer.tensor->count != nested_outer_count(scales) - 1)
		return fail_shape(&c->outer, nested_outer_count(scales) - 1, "its matrix, by 256 scales,");
	rc = table_check(&table, nested_map(), got, 256, &differs);
	for (int i = 0; i < 256 && !rc; i++)
		if (fabsf(got[i] - nested_map()[i]) > nested_map_slack)
			rc = fail(&table, "is not the map of bitsandbytes' double quantization");
	if (rc || !differs)
		return rc;
	c->map = mem_alloc(256, sizeof(*c->map)); /* by another order of its fp32 operations */
	if (!c->map)
		return ERR_NOMEM;
	memcpy(c->map, got, sizeof(got));
	return 0;
}

static int of_4bit(struct hf_coded *c, const struct hf_dir *dir, const struct hf_place *marker, int len)
{
	const char *name = marker->tensor->name;
	struct hf_place table = place_find(dir, name, len, ".quant_map");
	struct hf_quant_state s;
	int64_t count, scales;
	float got[16];
	int differs = 0, rc = state_read(&s, marker);

	if (rc)
		return rc;
	c->codes = place_find(dir, name, len, "");
	c->scales = place_find(dir, name, len, ".absmax");
	if (!c->codes.tensor || !c->scales.tensor || !table.tensor)
		return missing(marker, !c->codes.tensor ? ".weight"
		                       : !table.tensor  ? ".quant_map"
		                                        : ".absmax");
	count = s.shape[0] * s.shape[1];
	scales = (count + s.block - 1) / s.block;
	if (c->codes.tensor->len_bytes != code_bytes(s.code, count))
		return fail_shape(&c->codes, count, "its quant_state, with two to a byte,");
	if (c->scales.tensor->count != scales)
		return fail_shape(&c->scales, scales, "its quant_state, by blocks,");
	rc = table_check(&table, code_values(s.code), got, 16, &differs);
	if (!rc && differs)
		rc = fail(&table, "is not the table of its type");
	if (!rc && !s.is_nested && c->scales.tensor->dtype != SAFETENSORS_F32)
		rc = fail(&c->scales, "is not F32, and its quant_state has no nested_offset");
	if (!rc && s.is_nested)
		rc = nested_find(c, dir, name, len, scales);
	c->format = weight_format_coded(s.code, s.is_nested ? CODE_SCALE_NESTED : CODE_SCALE_F32, s.block);
	c->offset = s.offset;
	c->as.rank = 2;
	memcpy(c->as.shape, s.shape, sizeof(s.shape));
	return rc;
}

/* ---- the others: a matrix of codes with its own shape ---- */

static int scales_check(const struct hf_coded *c)
{
	const struct safetensors_tensor *t = c->scales.tensor;
	int64_t rows = c->as.shape[0], cols = c->as.shape[1],
	        wanted = weight_format_scales(c->format, rows, cols);
	int64_t down = weight_format_scales(c->format, rows, 1);
	int is_known = t->dtype == SAFETENSORS_F8_E8M0 ||
	               (c->format->scale == CODE_SCALE_E8M0
	                               ? t->dtype == SAFETENSORS_U8
	                               : t->dtype == SAFETENSORS_F32 || t->dtype == SAFETENSORS_BF16 ||
	                                         t->dtype == SAFETENSORS_F16);

	if (!is_known)
		return fail(&c->scales, "has scales of a dtype that ferry does not read");
	if (c->is_one || (t->count == wanted && (wanted == down || (t->rank == 2 && t->shape[0] == down))))
		return 0;
	return fail_shape(&c->scales, wanted, "its matrix, by rows and blocks,");
}

static int matrix_set(struct hf_coded *c, int codes_of_an_element)
{
	const struct safetensors_tensor *t = c->codes.tensor;

	if (t->rank != 2)
		return fail(&c->codes, "has codes, but is no matrix");
	c->as.rank = 2;
	c->as.shape[0] = t->shape[0];
	c->as.shape[1] = t->shape[1] * codes_of_an_element;
	return scales_check(c);
}

static int of_8bit(struct hf_coded *c, const struct hf_dir *dir, const struct hf_place *marker, int len)
{
	c->codes = place_find(dir, marker->tensor->name, len, ".weight");
	c->scales = *marker;
	c->format = weight_format_coded(CODE_I8, CODE_SCALE_F32, 0);
	c->factor = 7.874016e-03F; /* 1 / 127, as bitsandbytes writes it */
	if (!c->codes.tensor)
		return missing(marker, ".weight");
	if (c->codes.tensor->dtype != SAFETENSORS_I8)
		return fail(&c->codes, "is not I8, and an .SCB is beside it");
	return matrix_set(c, 1);
}

static int of_fp8_blocks(struct hf_coded *c, const struct hf_dir *dir, const struct hf_place *marker, int len)
{
	c->codes = place_find(dir, marker->tensor->name, len, ".weight");
	c->scales = *marker;
	c->format = weight_format_coded(CODE_E4M3, CODE_SCALE_F32, 128);
	if (!c->codes.tensor)
		return missing(marker, ".weight");
	if (c->codes.tensor->dtype != SAFETENSORS_F8_E4M3)
		return fail(&c->codes, "is not F8_E4M3, and a .weight_scale_inv is beside it");
	return matrix_set(c, 1);
}

/* compressed-tensors: one scale, one for each row, or blocks of 128 x 128; MXFP4 has .weight_packed. */
static int of_compressed(struct hf_coded *c, const struct hf_dir *dir, const struct hf_place *marker, int len)
{
	const char *name = marker->tensor->name;
	struct hf_place packed = place_find(dir, name, len, ".weight_packed");
	int64_t rows;

	c->codes = packed.tensor ? packed : place_find(dir, name, len, ".weight");
	c->scales = *marker;
	if (!c->codes.tensor)
		return missing(marker, ".weight");
	if (packed.tensor) {
		if (packed.tensor->dtype != SAFETENSORS_U8 ||
		        (marker->tensor->dtype != SAFETENSORS_U8 &&
		                marker->tensor->dtype != SAFETENSORS_F8_E8M0))
			return err_set(ERR_UNSUPPORTED,
			        "%s: tensor \"%s\" is packed in a way that ferry does not read; of packed "
			        "weights it reads MXFP4 (U8 with scales in U8 or F8_E8M0)",
			        packed.file->path, safetensors_name_show(packed.tensor->name).text);
		c->format = weight_format_coded(CODE_E2M1, CODE_SCALE_E8M0, 32);
		c->own_name = mem_printf("%.*s.weight", len, name);
		return c->own_name ? matrix_set(c, 2) : ERR_NOMEM;
	}
	if (c->codes.tensor->dtype != SAFETENSORS_F8_E4M3)
		return err_set(ERR_UNSUPPORTED,
		        "%s: tensor \"%s\" is %s with scales; of 8-bit weights ferry reads F8_E4M3",
		        c->codes.file->path, safetensors_name_show(c->codes.tensor->name).text,
		        safetensors_dtype_name(c->codes.tensor->dtype));
	rows = c->codes.tensor->rank ? c->codes.tensor->shape[0] : 0;
	c->is_one = marker->tensor->count == 1;
	c->format = weight_format_coded(CODE_E4M3, CODE_SCALE_F32,
	        c->is_one || marker->tensor->count == rows ? WEIGHT_BLOCK_ROW : 128);
	return matrix_set(c, 1);
}

/* gpt-oss: matrices of all experts, in blocks of 32 elements along `in`. */
static int of_experts(struct hf_coded *c, const struct hf_dir *dir, const struct hf_place *marker, int len)
{
	const struct safetensors_tensor *codes, *scales = marker->tensor;

	c->codes = place_find(dir, scales->name, len, "_blocks");
	c->scales = *marker;
	c->format = weight_format_coded(CODE_E2M1, CODE_SCALE_E8M0, 32);
	c->is_turned = 1;
	codes = c->codes.tensor;
	if (!codes)
		return missing(marker, "_blocks");
	if (codes->dtype != SAFETENSORS_U8 || scales->dtype != SAFETENSORS_U8)
		return fail(codes->dtype != SAFETENSORS_U8 ? &c->codes : marker, "is not U8, as MXFP4 is");
	if (codes->rank != 4 || codes->shape[3] != 16)
		return fail(&c->codes, "has not the shape [experts, rows, blocks, 16] of MXFP4");
	if (scales->rank != 3 || memcmp(scales->shape, codes->shape, 3 * sizeof(*codes->shape)) != 0)
		return fail_shape(marker, codes->count / 16, "its blocks,");
	if (!codes->count)
		return fail(&c->codes, "is empty");
	c->own_name = mem_printf("%.*s", len, scales->name);
	c->as.rank = 3;
	c->as.shape[0] = codes->shape[0];
	c->as.shape[1] = 32 * codes->shape[2];
	c->as.shape[2] = codes->shape[1];
	return c->own_name ? 0 : ERR_NOMEM;
}

/* ---- all ---- */

/* The tensor that shows a format, and its companions' endings behind the same prefix. */
static const struct {
	const char *ending;
	int (*find)(struct hf_coded *c, const struct hf_dir *dir, const struct hf_place *marker, int len);
	const char *companions[7];
} kinds[] = {
        {".quant_state.bitsandbytes__nf4", of_4bit,
                {".quant_state.bitsandbytes__nf4", ".absmax", ".quant_map", ".nested_absmax",
                        ".nested_quant_map"}},
        {".quant_state.bitsandbytes__fp4", of_4bit,
                {".quant_state.bitsandbytes__fp4", ".absmax", ".quant_map", ".nested_absmax",
                        ".nested_quant_map"}},
        {".SCB", of_8bit, {".SCB", ".weight_format"}},
        {".weight_scale_inv", of_fp8_blocks, {".weight_scale_inv", ".input_scale"}},
        {".weight_scale", of_compressed, {".weight_scale", ".input_scale", ".weight_shape"}},
        {"_scales", of_experts, {"_scales"}},
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(*kinds) };

/* Notes what a tensor is. Fails if it is something already: two matrices with the same codes. */
static int note(struct hf_coded_set *set, const struct hf_place *at, int64_t what)
{
	for (int f = 0; f < set->dir->file_count; f++) {
		int64_t *of;

		if (set->dir->files[f] != at->file)
			continue;
		of = &set->of[f][at->tensor - at->file->tensors];
		if (*of && *of != what)
			return fail(at, "belongs to two kinds of quantized weights");
		*of = what;
	}
	return 0;
}

static int add(struct hf_coded_set *set, const struct hf_place *marker, int kind)
{
	int len = (int)(strlen(marker->tensor->name) - strlen(kinds[kind].ending)), rc;
	struct hf_coded *c;

	if (set->count == set->room) {
		int64_t room = 2 * set->room + 64;
		struct hf_coded *grown = mem_resize(set->coded, (size_t)room, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		set->coded = grown;
		set->room = room;
	}
	c = &set->coded[set->count++];
	*c = (struct hf_coded){.factor = 1};
	rc = kinds[kind].find(c, set->dir, marker, len);
	if (rc)
		return rc;
	c->as.name = c->own_name ? c->own_name : c->codes.tensor->name;
	c->as.dtype = SAFETENSORS_BF16;
	c->as.count = 1;
	for (int d = 0; d < c->as.rank; d++)
		c->as.count *= c->as.shape[d];
	c->as.begin_bytes = c->codes.tensor->begin_bytes;
	c->as.len_bytes = 2 * c->as.count;
	rc = note(set, &c->codes, set->count);
	for (int i = 0; i < 7 && kinds[kind].companions[i] && !rc; i++) {
		struct hf_place at =
		        place_find(set->dir, marker->tensor->name, len, kinds[kind].companions[i]);

		if (at.tensor)
			rc = note(set, &at, -set->count);
	}
	return rc;
}

int hf_coded_find(struct hf_coded_set *set, const struct hf_dir *dir)
{
	int rc = 0;

	*set = (struct hf_coded_set){
	        .dir = dir, .of = mem_alloc((size_t)dir->file_count + 1, sizeof(*set->of))};
	if (!set->of)
		return ERR_NOMEM;
	for (int f = 0; f < dir->file_count && !rc; f++) {
		set->of[f] = mem_alloc((size_t)dir->files[f]->tensor_count + 1, sizeof(**set->of));
		rc = set->of[f] ? 0 : ERR_NOMEM;
	}
	for (int f = 0; f < dir->file_count && !rc; f++)
		for (int64_t t = 0; t < dir->files[f]->tensor_count && !rc; t++)
			for (int k = 0; k < KIND_COUNT && !rc; k++) {
				struct hf_place marker = {dir->files[f], &dir->files[f]->tensors[t]};

				if (str_ends_with(marker.tensor->name, kinds[k].ending))
					rc = add(set, &marker, k);
			}
	return rc;
}

void hf_coded_free(struct hf_coded_set *set)
{
	for (int f = 0; set->of && f < set->dir->file_count; f++)
		mem_free(set->of[f]);
	for (int64_t i = 0; i < set->count; i++) {
		mem_free(set->coded[i].own_name);
		mem_free(set->coded[i].map);
	}
	mem_free(set->of);
	mem_free(set->coded);
	*set = (struct hf_coded_set){0};
}

const struct hf_coded *hf_coded_of(
        const struct hf_coded_set *set, int file_index, int64_t tensor, int companion)
{
	int64_t of = set->of[file_index][tensor];

	if (companion)
		of = -of;
	return of > 0 ? &set->coded[of - 1] : NULL;
}
