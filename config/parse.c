/* Parses configuration files and the command line into a struct config. */
#include "config/args.h"
#include "config/dialect.h"
#include "config/problems.h"
#include "config/reference.h"
#include "config/table.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/yaml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN_BYTES_SHOWN = 2400 };

/* The state of one config_parse. */
struct parser {
	struct config *c;
	struct config_layer layer;
	struct dialect_state dialects;
	struct problems problems;
	struct str unknowns; /* keys of the present file that are like none, with their lines */
	const char *unknown_first, *unknown_near; /* the first of them, and what it is near to */
	int unknown_line;
	int unknown_count, unknown_hidden;
};

/* ---- setting one key ---- */

void config_place(struct str *out, const struct config_layer *layer, int line)
{
	if (layer->file)
		str_printf(out, "%s:%d: ", layer->file, line);
}

/* Puts place, name and value in front of the error text. */
static int note_place(int err, const struct config_layer *layer, const char *as, int line, const char *text)
{
	struct str place = {0};

	if (err == ERR_NOMEM)
		return err;
	config_place(&place, layer, line);
	str_printf(&place, "%s=", as);
	config_value_shown(&place, text);
	err_reword(err, "%s %s", place.data ? place.data : as, err_text());
	str_free(&place);
	return err;
}

void config_origin_free(struct config_origin *origin)
{
	mem_free(origin->place);
	mem_free(origin->as);
	mem_free(origin->text);
	mem_free(origin->value);
	*origin = (struct config_origin){0};
}

static int origin_set(struct config_origin *origin, const struct config_layer *layer, const char *as,
        int line, const char *text, const char *value, const struct config_word *refused)
{
	struct str place = {0};

	config_origin_free(origin);
	if (layer->file)
		str_add(&place, layer->file);
	if (layer->file && line)
		str_printf(&place, ":%d", line);
	origin->place = str_take(&place);
	origin->as = mem_strdup(as);
	origin->text = mem_strdup(text);
	origin->value = mem_strdup(value);
	origin->shown = refused ? refused->name : NULL;
	origin->refusal = refused ? refused->refusal : NULL;
	return origin->place && origin->as && origin->text && origin->value ? 0 : ERR_NOMEM;
}

static int duplicate_error(
        const struct config_layer *layer, const struct config_origin *before, const char *as, int line)
{
	const char *colon = before->place ? strrchr(before->place, ':') : NULL;
	size_t len = strlen(layer->file);
	int is_here =
	        colon && (size_t)(colon - before->place) == len && !strncmp(before->place, layer->file, len);

	return err_set(ERR_INPUT, "%s:%d: %s was already set%s%s by %s, to another value; keep one of them",
	        layer->file, line, as,
	        is_here ? " on line "
	        : colon ? " at "
	                : "",
	        is_here ? colon + 1
	        : colon ? before->place
	                : "",
	        before->as);
}

int config_set(struct config *c, struct config_layer *layer, const struct config_key *key, const char *as,
        int line, const char *text, enum config_strength strength)
{
	int index = (int)(key - config_keys), err;
	const struct config_word *refused;
	struct str before = {0}, now = {0};
	const char *old_refusal = c->origins[index].refusal;

	if (layer->seen[index] && strength == CONFIG_WEAK)
		return 0;
	config_value_text(&before, c, key);
	err = config_value_set(c, key, text, &refused);
	if (err) {
		err = note_place(err, layer, as, line, text);
		goto out;
	}
	config_value_text(&now, c, key);
	err = str_check(&before) || str_check(&now) ? ERR_NOMEM : 0;
	if (err)
		goto out;
	if (layer->seen[index] == CONFIG_SEEN_STRONG &&
	        (strcmp(before.data ? before.data : "", now.data ? now.data : "") ||
	                old_refusal != (refused ? refused->refusal : NULL))) {
		if (layer->file) {
			err = duplicate_error(layer, &c->origins[index], as, line);
			goto out;
		}
		log_warn("%s is set twice; using %s=%.80s", key->name, as, text);
	}
	layer->seen[index] = strength == CONFIG_WEAK ? CONFIG_SEEN_WEAK : CONFIG_SEEN_STRONG;
	err = origin_set(&c->origins[index], layer, as, line, text, now.data ? now.data : "", refused);
	c->origins[index].is_auto = now.data && !strcmp(now.data, "auto");
out:
	str_free(&before);
	str_free(&now);
	return err;
}

int config_set_meant(
        struct config *c, const char *file, const char *name, const char *as, int line, const char *text)
{
	struct config_layer layer = {.file = file, .seen = mem_alloc((size_t)config_key_count, 1)};
	int err = layer.seen ? config_set(c, &layer, config_key_find(name), as, line, text, CONFIG_STRONG)
	                     : ERR_NOMEM;

	mem_free(layer.seen);
	return err;
}

/* ---- problems ---- */

static int problem(struct parser *p, int err)
{
	return problems_insert(&p->problems, p->problems.count, err);
}

/* What a layer's file is not for comes before its other problems. A method that ferry does not have is the
 * only one. */
static int refusals_report(struct parser *p, int at)
{
	int refused, err = 0;

	if (p->dialects.method) {
		problems_cut(&p->problems, at);
		while (dialect_refusal_next(&p->dialects))
			;
		return problem(p, dialect_method_take(&p->dialects));
	}
	while (!err && (refused = dialect_refusal_next(&p->dialects)))
		err = problems_insert(&p->problems, at++, refused);
	return err;
}

/* Unknown keys are reported together at the end of the file. */
static int unknown_remember(struct parser *p, const char *name, const char *near, int line)
{
	if (!p->unknown_count++) {
		p->unknown_first = name;
		p->unknown_near = near;
		p->unknown_line = line;
	}
	if (p->unknowns.len_bytes > UNKNOWN_BYTES_SHOWN) {
		p->unknown_hidden++;
		return 0;
	}
	str_printf(&p->unknowns, "%s%.100s (line %d%s%s%s)", p->unknown_count > 1 ? ", " : "", name, line,
	        near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	return str_check(&p->unknowns);
}

static int unknown(struct parser *p, const char *name, int line)
{
	const char *near = config_key_nearest(name, p->c->verb), *verb = config_keys_verb(p->c->verb);

	if (p->layer.file)
		return unknown_remember(p, name, near, line);
	return near ? err_set(ERR_INPUT, "unknown key \"%.100s\"; did you mean %s?", name, near)
	            : err_set(ERR_INPUT, "unknown key \"%.100s\"; see ferry %s --help", name, verb);
}

static int unknowns_report(struct parser *p)
{
	int count = p->unknown_count, err;

	if (!count)
		return 0;
	if (p->unknown_hidden)
		str_printf(&p->unknowns, " and %d more", p->unknown_hidden);
	if (str_check(&p->unknowns))
		return ERR_NOMEM;
	if (count > 1)
		err_set(ERR_INPUT, "%s: unknown keys: %s; see ferry %s --help", p->layer.file,
		        p->unknowns.data, config_keys_verb(p->c->verb));
	else if (p->unknown_near)
		err_set(ERR_INPUT, "%s:%d: unknown key \"%.100s\"; did you mean %s?", p->layer.file,
		        p->unknown_line, p->unknown_first, p->unknown_near);
	else
		err_set(ERR_INPUT, "%s:%d: unknown key \"%.100s\"; see ferry %s --help", p->layer.file,
		        p->unknown_line, p->unknown_first, config_keys_verb(p->c->verb));
	err = problem(p, ERR_INPUT);
	str_free(&p->unknowns);
	p->unknown_count = p->unknown_hidden = 0;
	return err;
}

/* ---- one setting, wherever it stands ---- */

/* A key of another verb: names the one that this verb has instead. */
static int not_of_verb(const struct config_key *key, const char *name, enum verb verb)
{
	static const struct {
		const char *name, *twin;
	} twins[] = {{"per_device_train_batch_size", "per_device_eval_batch_size"}, {"eval_data", "data"},
	        {"eval_data_split", "data_split"}, {"checkpoint", "model"}, {"path", "model"},
	        {"prompt_file", "data"}, {"output_dir", "output_dirs"}, {"output_dirs", "output_dir"}};

	for (size_t i = 0; i < sizeof(twins) / sizeof(*twins); i++)
		if (!strcmp(key->name, twins[i].name) &&
		        config_key_known(config_key_find(twins[i].twin), verb))
			return err_set(ERR_INPUT, "%s is not a key of ferry %s; set %s", name,
			        config_keys_verb(verb), twins[i].twin);
	return err_set(ERR_INPUT, "%s is not a key of ferry %s; see ferry %s --help", name,
	        config_keys_verb(verb), config_keys_verb(verb));
}

static int list_error(const struct config_layer *layer, const char *as, int line)
{
	struct str place = {0};
	int err;

	config_place(&place, layer, line);
	err = str_check(&place);
	if (!err)
		err = err_set(
		        ERR_INPUT, "%s%s takes one value, not a list", place.data ? place.data : "", as);
	str_free(&place);
	return err;
}

int config_refuse_list(
        const struct config_layer *layer, const struct config_key *key, const char *as, int line)
{
	if (!layer->is_list || config_type_is_text(key->type) || key->type == TYPE_SET)
		return 0;
	if (key->type == TYPE_ENUM &&
	        strcmp(as, key->name) != 0) /* other trainers have lists: TRL's loss_type */
		return 0;
	return list_error(layer, as, line);
}

static int setting(struct parser *p, const char *name, const char *text, int line, int is_null)
{
	const struct config_key *key;
	int found =
	        dialect_set(&p->dialects, p->c, &p->layer, name, text, line, is_null, DIALECT_OWN_MEANING);

	if (found != DIALECT_UNKNOWN)
		return found < 0 ? found : 0;
	key = config_key_find(name);
	if (key && is_null)
		return 0;
	if (key && !config_key_known(key, p->c->verb) && !p->layer.file && key->verbs >> VERB_INIT & 1) {
		found = dialect_set(&p->dialects, p->c, &p->layer, name, text, line, is_null, DIALECT_ANY);
		if (found != DIALECT_UNKNOWN) /* --config names a file where others have it */
			return found < 0 ? found : 0;
	}
	if (key && !config_key_known(key, p->c->verb) && !p->layer.file)
		return not_of_verb(key, name, p->c->verb);
	if (key) {
		found = config_refuse_list(&p->layer, key, name, line);
		return found ? found : config_set(p->c, &p->layer, key, name, line, text, CONFIG_STRONG);
	}
	found = dialect_set(&p->dialects, p->c, &p->layer, name, text, line, is_null, DIALECT_ANY);
	if (found == DIALECT_UNKNOWN && is_null && p->dialects.layer)
		return dialect_pass(&p->dialects, name); /* null asks for nothing */
	return found == DIALECT_UNKNOWN ? unknown(p, name, line) : found < 0 ? found : 0;
}

static int layer_begin(struct parser *p, const char *file)
{
	mem_free(p->layer.seen);
	p->layer.file = file;
	p->layer.seen = mem_alloc((size_t)config_key_count, 1);
	dialect_layer_begin(&p->dialects);
	return p->layer.seen ? 0 : ERR_NOMEM;
}

static void layer_end(struct parser *p)
{
	const char *file = p->layer.file ? p->layer.file : "command line";

	if (p->dialects.passed.data)
		log_info("%s: ignoring keys without effect on results: %s", file, p->dialects.passed.data);
}

/* Sets a key that takes several texts from a YAML list, by writing the list as JSON. */
static int list_setting(struct parser *p, const struct yaml_item *item)
{
	struct str text = {0};
	int err;

	str_add(&text, "[");
	for (const char *at = item->text; at;) {
		const char *comma = strchr(at, ',');
		json_t *element = comma ? json_stringn(at, (size_t)(comma - at)) : json_string(at);
		char *quoted = json_dumps(element, JSON_ENCODE_ANY);

		str_printf(&text, "%s%s", at == item->text ? "" : ",", quoted ? quoted : "");
		free(quoted);
		json_decref(element);
		at = comma ? comma + 1 : NULL;
	}
	str_add(&text, "]");
	err = str_check(&text);
	if (!err)
		err = setting(p, item->path, text.data, item->line, item->is_null);
	str_free(&text);
	return err;
}

/* A setting that may be a list. */
static int value_setting(struct parser *p, const struct yaml_item *item)
{
	const struct config_key *key = config_key_find(item->path);
	int err;

	if (item->is_list && key && (key->type == TYPE_PATTERN || key->type == TYPE_TEXTS))
		return list_setting(p, item);
	if (item->is_list && key && key->path != CONFIG_PATH_NONE && key->path != CONFIG_PATH_DATA &&
	        strchr(item->text, ','))
		return list_error(&p->layer, item->path, item->line);
	p->layer.is_list = item->is_list;
	err = setting(p, item->path, item->text, item->line, item->is_null);
	p->layer.is_list = 0;
	return err;
}

static int item_setting(struct parser *p, const struct yaml_doc *doc, const struct yaml_item *item)
{
	struct str text = {0};
	int err;

	if (strstr(item->text, "${")) {
		err = reference_expand(&text, doc, item);
		if (err == ERR_INPUT)
			err_note(err, "%s:%d", p->layer.file, item->line);
		if (!err)
			err = setting(p, item->path, text.data, item->line, 0);
		str_free(&text);
		return err;
	}
	return value_setting(p, item);
}

/* Sets the keys of lists of data sets. */
static int sets_end(struct parser *p)
{
	int err = problem(p, dialect_sets_end(&p->dialects.sets, "data", p->c, &p->layer));

	return err ? err : problem(p, dialect_sets_end(&p->dialects.eval_sets, "eval_data", p->c, &p->layer));
}

static int read_file(struct parser *p, const char *path)
{
	struct yaml_doc doc;
	int err = layer_begin(p, path), first_problem = p->problems.count;

	if (err)
		return err;
	err = yaml_read_file(&doc, path);
	if (err == ERR_INPUT && strlen(path) > 3 && !strcmp(path + strlen(path) - 3, ".py"))
		return err_set(err,
		        "%s is a Python script; ferry reads files of settings: write its arguments as YAML",
		        path);
	if (err)
		return err;
	p->dialects.layer = dialect_recognize(&doc);
	p->dialects.file = p->dialects.layer;
	p->dialects.file_path = path;
	if (!doc.count)
		log_warn("%s is empty: it sets no key", path);
	if (p->dialects.layer)
		log_info("%s: reading it as a configuration of %s", path, dialect_name(p->dialects.layer));
	for (size_t i = 0; i < doc.count && !err; i++) {
		const struct yaml_item *item = &doc.items[i];

		err = item_setting(p, &doc, item);
		err = problem(p, err);
	}
	if (!err)
		err = unknowns_report(p);
	yaml_doc_free(&doc);
	if (!err)
		err = sets_end(p);
	if (!err)
		err = refusals_report(p, first_problem);
	if (!err)
		layer_end(p);
	return err;
}

/* ---- the command line ---- */

static int plain(struct parser *p, const char *text)
{
	const char *name = verb_infos[p->c->verb].positional;

	if (p->layer.seen[config_key_find(name) - config_keys])
		return err_set(ERR_INPUT, "unexpected argument \"%s\"; write key=value", text);
	return setting(p, name, text, 0, 0);
}

/* Sets the key of a verb that takes several plain arguments to the list of them. */
static int plain_list(struct parser *p, const struct argument *list, int count)
{
	json_t *all = json_array();
	char *text = NULL;
	int err = all ? 0 : ERR_NOMEM;

	for (int i = 0; i < count && !err; i++) {
		if (list[i].kind != ARGUMENT_PLAIN)
			continue;
		if (json_array_append_new(all, json_string(list[i].text)))
			err = err_set(ERR_INPUT, "%s is not UTF-8; rename it", list[i].text);
	}
	if (!err && json_array_size(all))
		err = json_write(&text, all, JSON_COMPACT);
	if (!err && text)
		err = setting(p, verb_infos[p->c->verb].positional, text, 0, 0);
	mem_free(text);
	json_decref(all);
	return err;
}

/* A command line without a file may be one of another trainer's program. */
static int recognize_arguments(struct parser *p, const struct argument *list, int count)
{
	struct yaml_doc doc = {.items = mem_alloc((size_t)count + 1, sizeof(*doc.items))};

	if (!doc.items)
		return ERR_NOMEM;
	for (int i = 0; i < count; i++)
		if (list[i].kind == ARGUMENT_SETTING)
			doc.items[doc.count++].path = (char *)list[i].name;
	p->dialects.layer = dialect_recognize(&doc);
	p->dialects.file = p->dialects.layer;
	mem_free(doc.items);
	if (p->dialects.layer)
		log_info(
		        "command line: reading it as a configuration of %s", dialect_name(p->dialects.layer));
	return 0;
}

static int argument_setting(struct parser *p, const struct argument *a)
{
	struct yaml_item item = {.path = (char *)a->name, .text = (char *)a->text, .is_list = a->words > 0};

	return value_setting(p, &item);
}

static int read_arguments(struct parser *p, const struct argument *list, int count)
{
	int err = 0, first_problem, takes_several = verb_infos[p->c->verb].facts & VERB_TAKES_SEVERAL;

	for (int i = 0; i < count && !err; i++) {
		if (list[i].kind != ARGUMENT_FILE)
			continue;
		err = argument_file_key(list[i].text) ? ERR_INPUT : read_file(p, list[i].text);
		if (err)
			err = argument_not_a_file(&list[i], err);
	}
	if (!err)
		err = layer_begin(p, NULL);
	if (!err && !p->dialects.file_path)
		err = recognize_arguments(p, list, count);
	first_problem = p->problems.count;
	if (!err && takes_several)
		err = problem(p, plain_list(p, list, count));
	for (int i = 0; i < count && !err; i++) {
		if (list[i].kind == ARGUMENT_PLAIN && !takes_several)
			err = problem(p, plain(p, list[i].text));
		else if (list[i].kind == ARGUMENT_SETTING)
			err = problem(p, argument_setting(p, &list[i]));
	}
	if (!err)
		err = sets_end(p);
	if (!err)
		err = refusals_report(p, first_problem);
	if (!err)
		layer_end(p);
	return err;
}

/* ---- the whole parse ---- */

static int set_defaults(struct config *c)
{
	const struct config_word *refused;

	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		int err = config_value_set(c, key, key->default_text, &refused);

		if (err)
			return err_note(err == ERR_NOMEM ? err : ERR_INTERNAL, "default of %s", key->name);
	}
	return 0;
}

static int wants_help(int argc, char *const argv[])
{
	int options = argument_options(argc, argv);

	for (int i = 0; i < options; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return 1;
	return 0;
}

int config_parse(struct config *c, enum verb verb, int argc, char *const argv[])
{
	struct parser p = {.c = c};
	struct argument *list = NULL;
	int count = 0, err;

	memset(c, 0, sizeof(*c));
	c->verb = verb;
	c->word_count = argc;
	c->origins = mem_alloc((size_t)config_key_count, sizeof(*c->origins));
	if (!c->origins)
		return ERR_NOMEM;
	err = set_defaults(c);
	c->help = wants_help(argc, argv);
	if (err || c->help)
		return err;
	err = argument_split(&list, &count, verb, argc, argv);
	if (!err)
		err = read_arguments(&p, list, count);
	if (!err)
		err = problems_report(&p.problems);
	if (!err)
		err = dialect_finish(&p.dialects, c);
	if (!err)
		err = config_resolve(c);
	dialect_state_free(&p.dialects);
	problems_free(&p.problems);
	str_free(&p.unknowns);
	mem_free(p.layer.seen);
	mem_free(list);
	return err;
}

void config_free(struct config *c)
{
	if (!c)
		return;
	for (int i = 0; i < config_key_count; i++)
		if (config_type_is_text(config_keys[i].type))
			mem_free(*(char **)((char *)c + config_keys[i].offset));
	for (int i = 0; c->origins && i < config_key_count; i++)
		config_origin_free(&c->origins[i]);
	mem_free(c->origins);
	json_decref(c->data_lines);
	memset(c, 0, sizeof(*c));
}

int64_t config_steps(double value, int64_t total_steps, int64_t epoch_steps)
{
	if (value == CONFIG_EACH_EPOCH)
		return epoch_steps;
	if (value == CONFIG_AT_THE_BEST)
		return 0;
	return value < 1 ? (int64_t)ceil(value * (double)total_steps) : (int64_t)value;
}
