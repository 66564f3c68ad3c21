/* Writes the file of one rank: all planes of its ranges. */
#include "checkpoint/save_parts.h"

#include "base/file.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE_BYTES = 256 << 10 }; /* bytes of one read, so that hashing finds them in the cache */

static void free_decls(struct safetensors_decl *decls, int64_t count)
{
	for (int64_t i = 0; decls && i < count; i++)
		mem_free((char *)decls[i].name);
	mem_free(decls);
}

unsigned save_planes_of(const struct checkpoint_save *save, int tensor)
{
	const struct model_tensor *t = &save->model->tensors[tensor];

	if (save->leaves_frozen && model_tensor_is_of_base(t))
		return 0;
	return save->planes & planes_of_unit(model_tensor_format(t, DTYPE_F32), t->trainable, save->state);
}

/* "m:model.norm.weight[0:64]" */
static int set_decl(struct safetensors_decl *decl, const struct checkpoint_saving *s, enum plane plane,
        const struct plane_range *range)
{
	*decl = (struct safetensors_decl){
	        .name = mem_printf("%s:%s[%" PRId64 ":%" PRId64 "]", plane_name(plane),
	                s->save.model->tensors[range->tensor].name, range->first,
	                range->first + range->count),
	        .dtype = (enum safetensors_dtype)plane_dtype(plane, s->save.state, DTYPE_F32),
	        .rank = 1,
	        .shape = {plane_numbers(plane, s->save.state, range->count)}};
	return decl->name ? 0 : ERR_NOMEM;
}

/* Lists all planes of one range after the other, so that the reader is done with the first ranges early. */
static int make_decls(struct safetensors_decl **out, int64_t *out_count, const struct checkpoint_saving *s)
{
	enum plane order[PLANE_SAVED_COUNT];
	const struct manifest_file *file = &s->file;
	struct safetensors_decl *decls =
	        mem_alloc((size_t)file->range_count * PLANE_SAVED_COUNT + 1, sizeof(*decls));
	int64_t count = 0;
	int err = decls ? 0 : ERR_NOMEM;

	plane_file_order(order, s->save.state);
	for (int64_t r = 0; !err && r < file->range_count; r++)
		for (int o = 0; !err && o < PLANE_SAVED_COUNT; o++)
			if (save_planes_of(&s->save, file->ranges[r].tensor) & 1u << order[o])
				err = set_decl(&decls[count++], s, order[o], &file->ranges[r]);
	if (err) {
		free_decls(decls, count);
		return err;
	}
	*out = decls;
	*out_count = count;
	return 0;
}

/* Writes one plane of a range, from its address or through `piece`. */
static int write_plane(struct safetensors_writer *writer, const struct checkpoint_saving *s, enum plane plane,
        struct plane_range at, void *piece)
{
	const struct plane_source *source = s->save.source;
	int64_t most = PIECE_BYTES / plane_width(plane, s->save.state) * plane_block(plane, s->save.state),
	        end = at.first + at.count;
	const void *lies = NULL;
	int err = 0;

	if (source->at && at.count)
		err = source->at(source->context, at.tensor, plane, at.first, at.count, &lies);
	if (err || lies)
		return err ? err
		           : safetensors_append(
		                     writer, lies, (size_t)plane_bytes(plane, s->save.state, at.count));
	most = most < PLANE_PIECE_COUNT ? most : PLANE_PIECE_COUNT;
	for (; !err && at.first < end; at.first += at.count) {
		at.count = end - at.first < most ? end - at.first : most;
		err = source->read(source->context, at.tensor, plane, at.first, at.count, piece);
		if (!err)
			err = safetensors_append(
			        writer, piece, (size_t)plane_bytes(plane, s->save.state, at.count));
	}
	return err;
}

static int write_planes(const struct checkpoint_saving *s, struct safetensors_writer *writer)
{
	const struct plane_source *source = s->save.source;
	enum plane order[PLANE_SAVED_COUNT];
	const struct manifest_file *file = &s->file;
	void *piece = mem_alloc(PIECE_BYTES, 1);
	int err = piece ? 0 : ERR_NOMEM;

	plane_file_order(order, s->save.state);
	for (int64_t r = 0; !err && r < file->range_count; r++) {
		for (int o = 0; !err && o < PLANE_SAVED_COUNT; o++)
			if (save_planes_of(&s->save, file->ranges[r].tensor) & 1u << order[o])
				err = write_plane(writer, s, order[o], file->ranges[r], piece);
		if (!err && source->done)
			source->done(source->context, file->ranges[r].tensor, file->ranges[r].first);
	}
	mem_free(piece);
	return err;
}

static int keep_hashes(struct manifest_file *file, const struct safetensors_writer *writer)
{
	const uint64_t *hashes = safetensors_writer_hashes(writer, &file->block_count);

	file->len_bytes = safetensors_writer_bytes(writer);
	file->hashes = mem_alloc((size_t)file->block_count, sizeof(*hashes));
	if (!file->hashes)
		return ERR_NOMEM;
	memcpy(file->hashes, hashes, (size_t)file->block_count * sizeof(*hashes));
	return 0;
}

int save_write_shard(struct checkpoint_saving *s)
{
	const struct plane_source *source = s->save.source;
	static const struct safetensors_text metadata = {"format", "ferry planes"};
	struct safetensors_writer *writer = NULL;
	struct safetensors_decl *decls = NULL;
	int64_t decl_count = 0;
	char *path = NULL;
	int err;

	s->file.name = mem_printf("rank-%05d.safetensors", s->save.world.rank);
	path = s->file.name ? file_join(s->temp, s->file.name) : NULL;
	err = path ? make_decls(&decls, &decl_count, s) : ERR_NOMEM;
	if (!err)
		err = safetensors_create(&writer, path, decls, decl_count, &metadata, 1, SAFETENSORS_HASHED);
	if (!err)
		err = write_planes(s, writer);
	if (source->done)
		source->done(source->context, PLANE_SOURCE_END, 0);
	if (!err)
		err = safetensors_finish(writer);
	if (!err)
		err = keep_hashes(&s->file, writer);
	safetensors_writer_free(writer);
	free_decls(decls, decl_count);
	mem_free(path);
	return err;
}
