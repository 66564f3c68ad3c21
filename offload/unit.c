/* Groups tensors into units, and places each tensor in its unit. */
#include "offload/unit.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/join.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE_SHARD_ALIGN = 16 }; /* bytes, as tensors are aligned */

/* A module of torch's module tree, derived from dotted names. A tensor belongs to the module named by all but
 * its last part. */
struct module {
	char *path; /* "" for the root */
	size_t path_len;
	int parent;
	int is_list; /* 1: its children are numbered; torch's ModuleList, never a unit */
	int64_t own_count;
	int unit; /* -1: not a unit */
};

struct module_tree {
	struct module *modules;
	int count, cap;
	int *tensor_module;
};

static int module_find(const struct module_tree *t, const char *path, size_t len)
{
	for (int i = t->count - 1; i >= 0; i--)
		if (t->modules[i].path_len == len && !memcmp(t->modules[i].path, path, len))
			return i;
	return -1;
}

/* Index of the module with that path; adds it and its parents if new. Or a negative ERR_*. */
static int module_add(struct module_tree *t, const char *path, size_t len)
{
	int found = module_find(t, path, len);
	int parent = -1;

	if (found >= 0)
		return found;
	if (len) {
		size_t dot = len - 1;

		while (dot && path[dot] != '.')
			dot--;
		parent = module_add(t, path, dot);
		if (parent < 0)
			return parent;
		if (isdigit((unsigned char)path[dot ? dot + 1 : 0]))
			t->modules[parent].is_list = 1;
	}
	if (t->count == t->cap) {
		int cap = t->cap ? 2 * t->cap : 64;
		struct module *grown = mem_resize(t->modules, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		t->modules = grown;
		t->cap = cap;
	}
	struct module *m = &t->modules[t->count];

	memset(m, 0, sizeof(*m));
	m->path = mem_strndup(path, len);
	m->path_len = len;
	if (!m->path)
		return ERR_NOMEM;
	m->parent = parent;
	m->unit = -1;
	return t->count++;
}

static void module_tree_free(struct module_tree *t)
{
	for (int i = 0; i < t->count; i++)
		mem_free(t->modules[i].path);
	mem_free(t->modules);
	mem_free(t->tensor_module);
}

static int module_tree_build(struct module_tree *t, const struct model *model)
{
	t->tensor_module = mem_alloc((size_t)model->tensor_count, sizeof(int));
	if (!t->tensor_module)
		return ERR_NOMEM;
	if (module_add(t, "", 0) < 0)
		return ERR_NOMEM;
	for (int i = 0; i < model->tensor_count; i++) {
		const char *name = model->tensors[i].name;
		const char *dot = strrchr(name, '.');
		int module = module_add(t, name, dot ? (size_t)(dot - name) : 0);

		if (module < 0)
			return module;
		t->tensor_module[i] = module;
		t->modules[module].own_count += model->tensors[i].count;
	}
	return 0;
}

/* Makes a module a unit, in post-order, if its elements that are in no unit yet reach the minimum. Returns
 * the elements left over. */
static int64_t module_wrap(struct module_tree *t, int at, int64_t min_num_params, int *unit_count)
{
	int64_t rest = t->modules[at].own_count;

	for (int i = at + 1; i < t->count; i++)
		if (t->modules[i].parent == at)
			rest += module_wrap(t, i, min_num_params, unit_count);
	if (at == 0 || (rest >= min_num_params && !t->modules[at].is_list)) {
		t->modules[at].unit = (*unit_count)++;
		return 0;
	}
	return rest;
}

/* "block 3", "block 3, part 1", "embedding"; mem_free. */
static char *group_name(const struct model *model, const struct model_group *g)
{
	enum stage_kind kind = model->stages[g->first_stage].kind;

	if (g->layer < 0)
		return mem_strdup(kind == STAGE_EMBED ? "embedding" : stage_facts[kind].name);
	return g->parts > 1 ? mem_printf("block %d, part %d", g->layer, g->part)
	                    : mem_printf("block %d", g->layer);
}

/* Cuts tensors into pieces: the experts of each stage that reads a part of them. */
static int pieces_cut(struct unit_map *map)
{
	const struct model *model = map->model;
	int count = 0;

	for (int t = 0; t < model->tensor_count; t++)
		count += model_tensor_parts(model, t);
	map->pieces = mem_alloc((size_t)count, sizeof(*map->pieces));
	map->tensor_piece = mem_alloc((size_t)model->tensor_count + 1, sizeof(int));
	if (!map->pieces || !map->tensor_piece)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count; t++) {
		map->tensor_piece[t] = map->piece_count;
		for (int n = 0; n < model_tensor_parts(model, t); n++) {
			struct unit_piece *piece = &map->pieces[map->piece_count++];

			piece->tensor = t;
			model_tensor_part(model, t, n, &piece->first, &piece->count);
		}
	}
	map->tensor_piece[model->tensor_count] = map->piece_count;
	return 0;
}

/* The group that reads a piece. */
static int piece_group(const struct unit_map *map, int piece)
{
	int t = map->pieces[piece].tensor;

	return map->model->stages[map->model->tensors[t].first_stage + piece - map->tensor_piece[t]].group;
}

/* Joined tensors are in the unit of the first one, whatever the policy. They have one piece each. */
static void units_join(struct unit_map *map)
{
	for (int t = 0; t < map->model->tensor_count; t++) {
		int list[JOIN_MOST], count = model_place(list, map->model, t);

		for (int i = 1; i < count; i++)
			map->pieces[map->tensor_piece[list[i]]].unit =
			        map->pieces[map->tensor_piece[list[0]]].unit;
	}
}

/* Assigns pieces to units by policy, before ordering. Fills their units, and names; returns the number of
 * units or ERR_*. */
static int units_assign(struct unit_map *map, enum wrap_policy policy, int64_t min_num_params, char **names)
{
	const struct model *model = map->model;
	struct module_tree tree = {0};
	int unit_count = 0, rc;

	if (policy == WRAP_NONE) {
		names[0] = mem_strdup("model");
		return names[0] ? 1 : ERR_NOMEM;
	}
	rc = policy == WRAP_SIZE ? module_tree_build(&tree, model) : 0;
	if (rc)
		goto out;
	if (policy == WRAP_SIZE)
		module_wrap(&tree, 0, min_num_params, &unit_count);
	else
		unit_count = model->group_count;
	for (int i = 0; i < map->piece_count && !rc; i++) {
		int module = policy == WRAP_SIZE ? tree.tensor_module[map->pieces[i].tensor] : 0, u;

		while (policy == WRAP_SIZE && tree.modules[module].unit < 0)
			module = tree.modules[module].parent;
		u = map->pieces[i].unit =
		        policy == WRAP_SIZE ? tree.modules[module].unit : piece_group(map, i);
		if (names[u])
			continue;
		names[u] = policy != WRAP_SIZE ? group_name(model, &model->groups[u])
		                               : mem_strdup(module ? tree.modules[module].path : "rest");
		rc = names[u] ? 0 : ERR_NOMEM;
	}
	if (!rc)
		units_join(map);
	rc = rc ? rc : unit_count;
out:
	module_tree_free(&tree);
	return rc;
}

/* A unit of the policy, cut by kind: the part with trained tensors or with frozen ones, of one format, whose
 * products read the same codes; or a table. */
struct unit_part {
	int of; /* the policy's unit */
	int trainable;
	const struct weight_format *format, *multiplied;
	int table; /* tensor whose rows are looked up, alone in its unit; else -1 */
};

static int piece_is_table(const struct unit_map *map, const struct unit_piece *piece)
{
	const struct model_tensor *t = &map->model->tensors[piece->tensor];

	return map->shard_ranks == 1 && role_facts[t->role].kind == KIND_ROWS &&
	       !weight_format_is_coded(model_tensor_format(t, map->compute_dtype));
}

static struct unit_part part_of(const struct unit_map *map, const struct unit_piece *piece)
{
	const struct model_tensor *t = &map->model->tensors[piece->tensor];

	return (struct unit_part){piece->unit, t->trainable, model_tensor_format(t, map->compute_dtype),
	        t->multiplied, piece_is_table(map, piece) ? piece->tensor : -1};
}

static int part_is(const struct unit_part *a, const struct unit_part *b)
{
	return a->of == b->of && a->trainable == b->trainable && a->format == b->format &&
	       a->multiplied == b->multiplied && a->table == b->table;
}

static char *part_name(const struct unit_part *part, const char *name)
{
	if (part->trainable && part->multiplied)
		return mem_printf("%s, trained, products in %s", name, part->multiplied->name);
	return part->trainable ? mem_printf("%s, trained", name)
	                       : mem_printf("%s, frozen %s", name, part->format->name);
}

/* Splits a unit with several kinds of tensors into parts. The first kind that occurs keeps number and name.
 * names has room for every piece's. Returns the number of units or ERR_*. */
static int units_split(struct unit_map *map, int unit_count, char **names)
{
	int count = unit_count, rc = 0;
	struct unit_part *parts = mem_alloc((size_t)(unit_count + map->piece_count), sizeof(*parts));

	if (!parts)
		return ERR_NOMEM;
	for (int u = 0; u < unit_count; u++)
		parts[u].of = -1;
	for (int i = 0; i < map->piece_count && !rc; i++) {
		struct unit_part part = part_of(map, &map->pieces[i]);
		int at = part.of;

		if (parts[at].of >= 0 && !part_is(&parts[at], &part))
			for (at = unit_count; at < count && !part_is(&parts[at], &part);)
				at++;
		if (at == count) {
			names[count++] = part_name(&part, names[part.of]);
			rc = names[at] ? 0 : ERR_NOMEM;
		}
		parts[at] = part;
		map->pieces[i].unit = at;
	}
	mem_free(parts);
	return rc ? rc : count;
}

/* Orders units by their first use in forward, and drops units without tensors. */
static int units_order(struct unit_map *map, int assigned, char **names)
{
	const struct model *model = map->model;
	int *order = mem_alloc((size_t)assigned, sizeof(int));
	int count = 0, rc = 0;

	if (!order)
		return ERR_NOMEM;
	for (int i = 0; i < assigned; i++)
		order[i] = -1;
	for (int s = 0; s < model->stage_count; s++)
		for (int i = 0; i < model->stages[s].tensor_count; i++) {
			int u = unit_map_stage_piece(map, s, model->stages[s].tensor[i])->unit;

			if (order[u] < 0)
				order[u] = count++;
		}
	map->unit_count = count;
	map->units = mem_alloc((size_t)count, sizeof(*map->units));
	if (!map->units) {
		rc = ERR_NOMEM;
		goto out;
	}
	for (int u = 0; u < assigned; u++)
		if (order[u] >= 0) {
			map->units[order[u]].name = names[u];
			names[u] = NULL;
		}
	for (int i = 0; i < map->piece_count; i++) {
		struct unit_piece *piece = &map->pieces[i];

		piece->unit = order[piece->unit];
		if (piece->unit < 0) {
			rc = err_set(ERR_INTERNAL, "no part of the model reads tensor %s",
			        model->tensors[piece->tensor].name);
			goto out;
		}
	}
out:
	mem_free(order);
	return rc;
}

/* Places a piece at the end of its unit. */
static void piece_place(struct unit_map *map, struct unit_piece *piece)
{
	const struct model_tensor *t = &map->model->tensors[piece->tensor];
	struct unit *u = &map->units[piece->unit];
	int64_t cols = model_tensor_cols(t);

	piece->offset = u->count;
	u->trainable = t->trainable;
	u->format = model_tensor_format(t, map->compute_dtype);
	u->multiplied = t->multiplied;
	u->count += round_up(piece->count, UNIT_ALIGN);
	u->row_count = piece_is_table(map, piece) ? cols : 0;
	u->rows = piece->count / cols;
	if (unit_codes(u)) {
		piece->scale = u->scale_bytes;
		u->scale_bytes += weight_format_scale_bytes(unit_codes(u), piece->count / cols, cols);
	}
	u->piece_count++;
}

static int by_offset(const void *a, const void *b, void *map)
{
	const struct unit_piece *pieces = ((const struct unit_map *)map)->pieces;
	int64_t x = pieces[*(const int *)a].offset, y = pieces[*(const int *)b].offset;

	return x < y ? -1 : x > y;
}

static int units_layout(struct unit_map *map)
{
	int64_t granule = (int64_t)UNIT_ALIGN * map->shard_ranks;
	int rc = 0;

	for (int t = 0; t < map->model->tensor_count; t++) {
		int list[JOIN_MOST], count = model_place(list, map->model, t);

		for (int i = 0; i < count; i++)
			for (int n = map->tensor_piece[list[i]]; n < map->tensor_piece[list[i] + 1]; n++)
				piece_place(map, &map->pieces[n]);
	}
	for (int n = 0; n < map->unit_count && !rc; n++) {
		struct unit *u = &map->units[n];

		u->count = round_up(u->count, granule);
		u->shard_count = u->count / map->shard_ranks;
		u->scale_bytes = round_up(u->scale_bytes, (int64_t)SCALE_SHARD_ALIGN * map->shard_ranks);
		u->first = map->shard_total;
		u->table = u->row_count ? map->table_count++ : -1;
		map->shard_total += u->shard_count;
		u->pieces = mem_alloc((size_t)u->piece_count, sizeof(int));
		rc = u->pieces ? 0 : ERR_NOMEM;
		u->piece_count = 0;
	}
	for (int i = 0; i < map->piece_count && !rc; i++) {
		struct unit *u = &map->units[map->pieces[i].unit];

		u->pieces[u->piece_count++] = i;
	}
	for (int n = 0; n < map->unit_count && !rc; n++)
		qsort_r(map->units[n].pieces, (size_t)map->units[n].piece_count, sizeof(int), by_offset, map);
	return rc;
}

int unit_map_open(struct unit_map **out, const struct model *model, enum wrap_policy policy,
        int64_t min_num_params, enum dtype compute_dtype, int rank, int world_size)
{
	struct unit_map *map;
	char **names = NULL;
	int names_count = 0, rc;

	if (world_size < 1 || rank < 0 || rank >= world_size)
		return err_set(ERR_RANGE, "rank %d of %d ranks", rank, world_size);
	map = mem_alloc(1, sizeof(*map));
	if (!map)
		return ERR_NOMEM;
	map->model = model;
	map->compute_dtype = compute_dtype;
	map->shard_rank = rank;
	map->shard_ranks = world_size;
	rc = pieces_cut(map);
	if (rc)
		goto out;
	names_count = 2 * map->piece_count + model->group_count + model->tensor_count + 1;
	names = mem_alloc((size_t)names_count, sizeof(*names));
	if (!names) {
		rc = ERR_NOMEM;
		goto out;
	}
	rc = units_assign(map, policy, min_num_params, names);
	if (rc > 0)
		rc = units_split(map, rc, names);
	if (rc > 0)
		rc = units_order(map, rc, names);
	if (!rc)
		rc = units_layout(map);
out:
	for (int i = 0; names && i < names_count; i++)
		mem_free(names[i]);
	mem_free(names);
	if (rc) {
		unit_map_close(map);
		return rc;
	}
	*out = map;
	return 0;
}

void unit_map_close(struct unit_map *map)
{
	if (!map)
		return;
	for (int i = 0; map->units && i < map->unit_count; i++) {
		mem_free(map->units[i].pieces);
		mem_free(map->units[i].name);
	}
	mem_free(map->units);
	mem_free(map->pieces);
	mem_free(map->tensor_piece);
	mem_free(map);
}

unsigned unit_planes(const struct unit *u, enum adamw_state state)
{
	return planes_of_unit(u->format, u->trainable, state);
}

const struct weight_format *unit_map_format(const struct unit_map *map, int tensor)
{
	return map->units[map->pieces[map->tensor_piece[tensor]].unit].format;
}

int unit_map_stage_trains(const struct unit_map *map, int stage)
{
	const struct model_stage *s = &map->model->stages[stage];

	for (int i = 0; i < s->tensor_count; i++)
		if (map->model->tensors[s->tensor[i]].trainable)
			return 1;
	return 0;
}

const struct unit_piece *unit_map_stage_piece(const struct unit_map *map, int stage, int tensor)
{
	int first = map->tensor_piece[tensor], is_divided = map->tensor_piece[tensor + 1] - first > 1;

	return &map->pieces[first + (is_divided ? stage - map->model->tensors[tensor].first_stage : 0)];
}

const struct unit_piece *unit_map_piece(const struct unit_map *map, int tensor, int64_t element)
{
	int at = map->tensor_piece[tensor];

	while (at + 1 < map->tensor_piece[tensor + 1] && map->pieces[at + 1].first <= element)
		at++;
	return &map->pieces[at];
}

int64_t unit_map_run(const struct unit_map *map, int tensor, int64_t first, int64_t count)
{
	const struct unit_piece *piece = unit_map_piece(map, tensor, first);
	int64_t left = piece->first + piece->count - first;

	return left < count ? left : count;
}

void unit_map_locate(const struct unit_map *map, int tensor, int64_t first, int64_t count, int64_t *shard_at,
        int64_t *held, int64_t *skipped)
{
	const struct unit_piece *piece = unit_map_piece(map, tensor, first);
	const struct unit *u = &map->units[piece->unit];
	int64_t begin = piece->offset + first - piece->first, end = begin + count;
	int64_t shard_begin = u->shard_count * map->shard_rank, shard_end = shard_begin + u->shard_count;
	int64_t from = begin > shard_begin ? begin : shard_begin;
	int64_t to = end < shard_end ? end : shard_end;

	*held = to > from ? to - from : 0;
	*skipped = *held ? from - begin : 0;
	*shard_at = u->first + (*held ? from - shard_begin : 0);
}
