/* Loads the pre_tokenizer of tokenizer.json: the kinds, and the steps of each. */
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/pretokenizer_inside.h"
#include "data/tokenizer/unicode.h"

struct loading {
	struct pretokenizer *p;
	const char *where;
	enum pattern_engine engine;
};

struct pretokenizer_kind {
	const char *name, *keys;
	int (*load)(const struct loading *l, const json_t *spec);
};

static int add_step(const struct loading *l, struct pretokenizer_step step)
{
	if (l->p->step_count == PRETOKENIZER_STEPS_MAX)
		return err_set(ERR_UNSUPPORTED, "%s: pre_tokenizer: more than %d steps", l->where,
		        PRETOKENIZER_STEPS_MAX);
	l->p->steps[l->p->step_count++] = step;
	l->p->ends_in_bytes = step.action == &action_bytes;
	return 0;
}

static int add_class(const struct loading *l, unsigned classes, enum split_behavior behavior)
{
	return add_step(l, (struct pretokenizer_step){.action = &action_class,
	                           .classes = classes,
	                           .character = UNICODE_END,
	                           .behavior = behavior});
}

static int read_behavior(const struct loading *l, const json_t *spec, enum split_behavior *behavior)
{
	static const char *const names[] = {
	        "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
	const char *name = NULL;
	int rc = json_get_str(spec, l->where, "behavior", &name);

	if (rc < 0)
		return rc;
	for (int i = 0; name && i < 5; i++)
		if (strcmp(name, names[i]) == 0) {
			*behavior = (enum split_behavior)i;
			return 0;
		}
	return err_set(ERR_UNSUPPORTED, "%s: pre_tokenizer: the behavior '%.80s' is not supported", l->where,
	        name ? name : "");
}

/* Reads a key with one character as its value. */
static int read_character(const struct loading *l, const json_t *spec, const char *key, uint32_t *c)
{
	const char *text = NULL;
	int rc = json_get_str(spec, l->where, key, &text);

	if (rc < 0)
		return rc;
	if (!text || !*text || (size_t)utf8_get(text, c) != strlen(text))
		return err_set(ERR_INPUT, "%s: pre_tokenizer: \"%s\" is not one character", l->where, key);
	return 0;
}

static int load_split(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.action = &action_split};
	int rc = read_behavior(l, spec, &step.behavior);

	if (rc == 0)
		rc = json_flag(spec, l->where, "invert", 0, &step.invert);
	if (rc == 0)
		rc = pattern_load(&step.pattern, spec, l->where, "pre_tokenizer", l->engine);
	if (rc == 0)
		rc = add_step(l, step);
	if (rc < 0)
		pattern_close(step.pattern);
	return rc;
}

static int load_byte_level(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step split = {.action = &action_split, .behavior = SPLIT_BEHAVIOR_ISOLATED};
	int prefix_space = 0, trim_offsets, use_regex = 1;
	int rc = json_flag(spec, l->where, "add_prefix_space", 1, &prefix_space);

	if (rc == 0) /* changes only offsets, which ferry does not use */
		rc = json_flag(spec, l->where, "trim_offsets", 1, &trim_offsets);
	if (rc == 0)
		rc = json_flag(spec, l->where, "use_regex", 1, &use_regex);
	if (rc == 0 && prefix_space)
		rc = add_step(l, (struct pretokenizer_step){.action = &action_prefix_space});
	if (rc == 0 && use_regex) {
		rc = pattern_open(&split.pattern, PATTERN_KIND_REGEX, pattern_gpt2, l->engine);
		if (rc == 0)
			rc = add_step(l, split);
		if (rc < 0)
			pattern_close(split.pattern);
	}
	if (rc == 0)
		rc = add_step(l, (struct pretokenizer_step){.action = &action_bytes});
	return rc;
}

static int load_digits(const struct loading *l, const json_t *spec)
{
	int individual = 0, rc = json_flag(spec, l->where, "individual_digits", 0, &individual);

	if (rc < 0)
		return rc;
	return add_class(
	        l, UNICODE_NUMERIC, individual ? SPLIT_BEHAVIOR_ISOLATED : SPLIT_BEHAVIOR_CONTIGUOUS);
}

static int load_punctuation(const struct loading *l, const json_t *spec)
{
	enum split_behavior behavior = SPLIT_BEHAVIOR_ISOLATED;
	int rc = json_object_get(spec, "behavior") ? read_behavior(l, spec, &behavior) : 0;

	return rc < 0 ? rc : add_class(l, UNICODE_PUNCTUATION, behavior);
}

static int load_whitespace(const struct loading *l, const json_t *spec)
{
	(void)spec;
	return add_step(l, (struct pretokenizer_step){.action = &action_words});
}

static int load_whitespace_split(const struct loading *l, const json_t *spec)
{
	(void)spec;
	return add_class(l, UNICODE_SPACE, SPLIT_BEHAVIOR_REMOVED);
}

static int load_bert(const struct loading *l, const json_t *spec)
{
	int rc = load_whitespace_split(l, spec);

	return rc < 0 ? rc : add_class(l, UNICODE_PUNCTUATION, SPLIT_BEHAVIOR_ISOLATED);
}

static int load_delimiter(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.action = &action_char, .behavior = SPLIT_BEHAVIOR_REMOVED};
	int rc = read_character(l, spec, "delimiter", &step.character);

	return rc < 0 ? rc : add_step(l, step);
}

static int load_length(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.action = &action_length, .length = 5};
	int rc = json_get_int(spec, l->where, "length", &step.length);

	if (rc >= 0 && step.length < 1)
		rc = err_set(ERR_INPUT, "%s: pre_tokenizer: FixedLength needs a length above 0", l->where);
	return rc < 0 ? rc : add_step(l, step);
}

int metaspace_load(const json_t *spec, const char *where, enum metaspace_prepend *prepend)
{
	static const char *const names[] = {"always", "first", "never"};
	const char *name = NULL;
	int add_prefix_space = 1, rc = json_get_str(spec, where, "prepend_scheme", &name);

	*prepend = METASPACE_ALWAYS;
	for (int i = 0; name && i < 3; i++)
		if (strcmp(name, names[i]) == 0) {
			*prepend = (enum metaspace_prepend)i;
			name = NULL;
		}
	if (rc >= 0 && name)
		return err_set(ERR_UNSUPPORTED, "%s: Metaspace: the prepend_scheme '%.80s' is not supported",
		        where, name);
	if (rc >= 0)
		rc = json_get_bool(spec, where, "add_prefix_space", &add_prefix_space);
	if (rc < 0 || add_prefix_space)
		return rc < 0 ? rc : 0;
	if (json_object_get(spec, "prepend_scheme") && *prepend != METASPACE_NEVER)
		return err_set(ERR_INPUT,
		        "%s: Metaspace: add_prefix_space is false, and prepend_scheme is not \"never\"; keep "
		        "one",
		        where);
	*prepend = METASPACE_NEVER;
	return 0;
}

static int load_metaspace(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.action = &action_metaspace};
	int split = 1, rc = metaspace_load(spec, l->where, &step.prepend);
	uint32_t mark = 0;

	if (rc == 0)
		rc = json_flag(spec, l->where, "split", 1, &split);
	if (rc == 0)
		rc = read_character(l, spec, "replacement", &mark);
	if (rc < 0)
		return rc;
	step.mark_bytes = (size_t)utf8_put(step.mark, mark);
	step.behavior = split ? SPLIT_BEHAVIOR_MERGED_WITH_NEXT : SPLIT_BEHAVIOR_ISOLATED;
	return add_step(l, step);
}

static const struct pretokenizer_kind kinds[] = {
        {"ByteLevel", "type add_prefix_space trim_offsets use_regex", load_byte_level},
        {"Split", "type pattern behavior invert", load_split},
        {"Digits", "type individual_digits", load_digits},
        {"Punctuation", "type behavior", load_punctuation},
        {"Whitespace", "type", load_whitespace},
        {"WhitespaceSplit", "type", load_whitespace_split},
        {"BertPreTokenizer", "type", load_bert},
        {"CharDelimiterSplit", "type delimiter", load_delimiter},
        {"Metaspace", METASPACE_KEYS, load_metaspace},
        {"FixedLength", "type length", load_length},
};

static int load_one(const struct loading *l, const json_t *spec, int depth)
{
	const char *type;
	const json_t *list, *element;
	size_t i;
	int rc = json_type_of(spec, l->where, &type);

	if (rc < 0)
		return err_note(rc, "pre_tokenizer");
	if (strcmp(type, "Sequence") == 0) {
		rc = json_sequence(spec, l->where, "pre_tokenizer", "pretokenizers", depth, &list);
		json_array_foreach(list, i, element) if (rc == 0) rc = load_one(l, element, depth + 1);
		return rc;
	}
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, type) == 0) {
			rc = json_check_keys(spec, l->where, kinds[i].keys);
			return rc < 0 ? rc : kinds[i].load(l, spec);
		}
	return err_set(ERR_UNSUPPORTED, "%s: the pre_tokenizer %.80s is not supported", l->where, type);
}

int pretokenizer_load(
        struct pretokenizer *p, const json_t *spec, const char *where, enum pattern_engine engine)
{
	struct loading l = {.p = p, .where = where, .engine = engine};

	unicode_init();
	return !spec || json_is_null(spec) ? 0 : load_one(&l, spec, 0);
}

void pretokenizer_drop_alphabet(struct pretokenizer *p)
{
	p->step_count--;
	p->ends_in_bytes = 0;
}

void pretokenizer_free(struct pretokenizer *p)
{
	for (int i = 0; i < p->step_count; i++)
		pattern_close(p->steps[i].pattern);
	*p = (struct pretokenizer){0};
}
