#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/unicode.h"

enum { SEQUENCE_DEPTH_MAX = 8 };

struct loading {
	struct pretokenizer *p;
	const char *where;
	enum pattern_engine engine;
};

static int add_step(const struct loading *l, struct pretokenizer_step step)
{
	if (l->p->step_count == PRETOKENIZER_STEPS_MAX)
		return err_set(ERR_UNSUPPORTED, "%s: pre_tokenizer: more than %d steps", l->where,
		        PRETOKENIZER_STEPS_MAX);
	l->p->steps[l->p->step_count++] = step;
	return 0;
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

/* {"Regex": ".."} or {"String": ".."} */
static int read_pattern(const struct loading *l, const json_t *spec, struct pattern **pattern)
{
	const json_t *value = json_object_get(spec, "pattern");
	const char *text = NULL;
	enum pattern_kind kind = PATTERN_KIND_REGEX;
	int rc;

	if (!json_is_object(value) || json_object_size(value) != 1)
		return err_set(ERR_INPUT,
		        "%s: pre_tokenizer: Split wants a pattern {\"Regex\": ..} or {\"String\": ..}",
		        l->where);
	rc = json_get_str(value, l->where, "Regex", &text);
	if (rc == 0) {
		kind = PATTERN_KIND_STRING;
		rc = json_get_str(value, l->where, "String", &text);
	}
	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: pre_tokenizer: a pattern that is neither Regex nor String", l->where);
	if (strlen(text) !=
	        json_string_length(json_object_get(value, kind == PATTERN_KIND_REGEX ? "Regex" : "String")))
		return err_set(ERR_UNSUPPORTED, "%s: pre_tokenizer: a pattern with a NUL", l->where);
	rc = pattern_open(pattern, kind, text, l->engine);
	return rc < 0 ? err_note(rc, "%s: pre_tokenizer", l->where) : 0;
}

static int load_split(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.kind = PRETOKENIZER_KIND_SPLIT};
	int rc = json_check_keys(spec, l->where, "type pattern behavior invert");

	if (rc == 0)
		rc = read_behavior(l, spec, &step.behavior);
	if (rc == 0)
		rc = json_flag(spec, l->where, "invert", 0, &step.invert);
	if (rc == 0)
		rc = read_pattern(l, spec, &step.pattern);
	if (rc == 0)
		rc = add_step(l, step);
	if (rc < 0)
		pattern_close(step.pattern);
	return rc;
}

static int load_byte_level(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step split = {
	        .kind = PRETOKENIZER_KIND_SPLIT, .behavior = SPLIT_BEHAVIOR_ISOLATED};
	int prefix_space = 0, trim_offsets, use_regex = 1;
	int rc = json_check_keys(spec, l->where, "type add_prefix_space trim_offsets use_regex");

	if (rc == 0)
		rc = json_flag(spec, l->where, "add_prefix_space", 1, &prefix_space);
	if (rc == 0) /* about offsets only */
		rc = json_flag(spec, l->where, "trim_offsets", 1, &trim_offsets);
	if (rc == 0)
		rc = json_flag(spec, l->where, "use_regex", 1, &use_regex);
	if (rc == 0 && l->p->byte_level_count++ > 0)
		rc = err_set(ERR_UNSUPPORTED, "%s: pre_tokenizer: ByteLevel twice", l->where);
	if (rc == 0 && prefix_space)
		rc = add_step(l, (struct pretokenizer_step){.kind = PRETOKENIZER_KIND_PREFIX_SPACE});
	if (rc == 0 && use_regex) {
		rc = pattern_open(&split.pattern, PATTERN_KIND_REGEX, pattern_gpt2, l->engine);
		if (rc == 0)
			rc = add_step(l, split);
		if (rc < 0)
			pattern_close(split.pattern);
	}
	if (rc == 0)
		rc = add_step(l, (struct pretokenizer_step){.kind = PRETOKENIZER_KIND_BYTES});
	return rc;
}

static int load_digits(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.kind = PRETOKENIZER_KIND_CLASS, .classes = UNICODE_N};
	int individual = 0, rc = json_check_keys(spec, l->where, "type individual_digits");

	if (rc == 0)
		rc = json_flag(spec, l->where, "individual_digits", 0, &individual);
	step.behavior = individual ? SPLIT_BEHAVIOR_ISOLATED : SPLIT_BEHAVIOR_CONTIGUOUS;
	return rc < 0 ? rc : add_step(l, step);
}

static int load_punctuation(const struct loading *l, const json_t *spec)
{
	struct pretokenizer_step step = {.kind = PRETOKENIZER_KIND_CLASS, .classes = UNICODE_PUNCTUATION};
	int rc = json_check_keys(spec, l->where, "type behavior");

	step.behavior = SPLIT_BEHAVIOR_ISOLATED;
	if (rc == 0 && json_object_get(spec, "behavior"))
		rc = read_behavior(l, spec, &step.behavior);
	return rc < 0 ? rc : add_step(l, step);
}

static int load_one(const struct loading *l, const json_t *spec, int depth)
{
	const char *type;
	const json_t *list, *element;
	size_t i;
	int rc = json_type_of(spec, l->where, &type);

	if (rc < 0)
		return rc;
	if (strcmp(type, "ByteLevel") == 0)
		return load_byte_level(l, spec);
	if (strcmp(type, "Split") == 0)
		return load_split(l, spec);
	if (strcmp(type, "Digits") == 0)
		return load_digits(l, spec);
	if (strcmp(type, "Punctuation") == 0)
		return load_punctuation(l, spec);
	if (strcmp(type, "Sequence") != 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: the pre_tokenizer %.80s is not supported; byte-level BPE (ByteLevel with Split, "
		        "Digits, Punctuation) is",
		        l->where, type);
	rc = json_check_keys(spec, l->where, "type pretokenizers");
	list = json_object_get(spec, "pretokenizers");
	if (rc == 0 && !json_is_array(list))
		rc = err_set(
		        ERR_INPUT, "%s: pre_tokenizer: Sequence wants an array \"pretokenizers\"", l->where);
	if (rc == 0 && depth == SEQUENCE_DEPTH_MAX)
		rc = err_set(ERR_UNSUPPORTED, "%s: pre_tokenizer: Sequences nested more than %d deep",
		        l->where, SEQUENCE_DEPTH_MAX);
	json_array_foreach(list, i, element) if (rc == 0) rc = load_one(l, element, depth + 1);
	return rc;
}

int pretokenizer_load(
        struct pretokenizer *p, const json_t *spec, const char *where, enum pattern_engine engine)
{
	struct loading l = {.p = p, .where = where, .engine = engine};
	int rc;

	if (!spec || json_is_null(spec))
		return err_set(ERR_UNSUPPORTED,
		        "%s: there is no pre_tokenizer, so this is not byte-level BPE, the kind that is "
		        "supported",
		        where);
	rc = load_one(&l, spec, 0);
	if (rc == 0 && p->byte_level_count == 0)
		rc = err_set(ERR_UNSUPPORTED,
		        "%s: the pre_tokenizer has no ByteLevel; byte-level BPE is the kind that is "
		        "supported",
		        where);
	/* as the last step it need not be done: words are bytes already */
	if (rc == 0 && p->steps[p->step_count - 1].kind == PRETOKENIZER_KIND_BYTES)
		p->step_count--;
	return rc;
}

void pretokenizer_free(struct pretokenizer *p)
{
	for (int i = 0; i < p->step_count; i++)
		pattern_close(p->steps[i].pattern);
	*p = (struct pretokenizer){0};
}
