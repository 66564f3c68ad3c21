/* Opens the tokenizer and template of a configuration, and makes the options of a dataset. */
#include "train/inputs/data_config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/str.h"
#include "config/embedding.h"
#include "data/eval_split.h"
#include "data/template/moment.h"
#include "model/families/text_part.h"
#include "placement/options.h"

#include <inttypes.h>
#include <string.h>

/* JUDGED_GROUP_ROWS: of micro-batches of one row, which has no other; as in LLaMA-Factory. */
enum { CONFIG_BYTES_MAX = 16 << 20, JUDGED_GROUP_ROWS = 1000 };

int data_config_eos(struct tokenizer *t, const struct config *c)
{
	int err = c->eos_token && *c->eos_token ? tokenizer_set_eos(t, c->eos_token) : 0;

	return err ? err_note(err, "%s", config_where(c, "eos_token")) : 0;
}

static int tokenizer_find_and_open(struct tokenizer **t, const struct config *c, enum data_config_need need)
{
	const char *dir = c->tokenizer ? c->tokenizer : c->model;
	int found, err;

	*t = NULL;
	if (c->tokenizer && file_kind_of(c->tokenizer) == FILE_REGULAR)
		return tokenizer_open(t, c->tokenizer);
	if (!dir || file_kind_of(dir) != FILE_DIR) {
		if (need == TOKENIZER_OPTIONAL && !c->tokenizer)
			return 0;
		return err_set(ERR_INPUT, "set tokenizer=DIR, a directory with a tokenizer.json");
	}
	found = tokenizer_exists(dir);
	if (found < 0)
		return found;
	if (!found && need == TOKENIZER_OPTIONAL && !c->tokenizer)
		return 0;
	if (!found)
		return err_set(ERR_INPUT,
		        "%s has no tokenizer.json or tokenizer.model; set tokenizer=DIR, a directory with "
		        "one",
		        dir);
	err = tokenizer_open(t, dir);
	if (err != ERR_UNSUPPORTED || need == TOKENIZER_REQUIRED || c->tokenizer)
		return err;
	log_warn("%s", err_text());
	return 0;
}

int data_config_tokenizer(struct tokenizer **t, const struct config *c, enum data_config_need need)
{
	int err = tokenizer_find_and_open(t, c, need);

	if (!err && *t)
		err = data_config_eos(*t, c);
	if (err) {
		tokenizer_close(*t);
		*t = NULL;
	}
	return err;
}

/* axolotl's word for the model's own template, or another if there is none */
static const char fallback[] = "tokenizer_default_fallback_";

static int template_chosen(const struct config *c)
{
	return c->chat_template && *c->chat_template && strcmp(c->chat_template, "auto") &&
	       strcmp(c->chat_template, "default") && strcmp(c->chat_template, "tokenizer_default") &&
	       strncmp(c->chat_template, fallback, strlen(fallback));
}

/* NULL: none. After an error, *kwargs may hold another value. */
static int read_kwargs(json_t **kwargs, const struct config *c)
{
	int rc;

	*kwargs = NULL;
	if (!c->chat_template_kwargs || !*c->chat_template_kwargs)
		return 0;
	rc = json_parse_exact(
	        kwargs, "chat_template_kwargs", c->chat_template_kwargs, strlen(c->chat_template_kwargs), 1);
	if (!rc && !json_is_map(*kwargs))
		rc = err_set(ERR_INPUT, "%s must be a JSON object", config_where(c, "chat_template_kwargs"));
	return rc;
}

int data_config_chat_template(
        struct chat_template **t, const struct config *c, const char *dir, const struct tokenizer *tokenizer)
{
	struct chat_template_options o = {.tokenizer = tokenizer};
	char *parent = NULL;
	json_t *kwargs = NULL;
	int rc = read_kwargs(&kwargs, c);

	*t = NULL;
	if (c->tokenizer && file_kind_of(c->tokenizer) == FILE_REGULAR) {
		dir = parent = file_dir_of(c->tokenizer);
		rc = parent ? 0 : ERR_NOMEM;
	} else if (c->tokenizer) {
		dir = c->tokenizer;
	} else if (!dir) {
		dir = c->model;
	}
	o.choice = template_chosen(c) ? c->chat_template : NULL;
	if (!o.choice && c->chat_template && !strncmp(c->chat_template, fallback, strlen(fallback)))
		o.fallback = c->chat_template + strlen(fallback);
	o.where = config_where(c, "chat_template");
	o.dir = dir && file_kind_of(dir) == FILE_DIR ? dir : NULL;
	o.kwargs = kwargs;
	o.moment = moment_now();
	if (!rc && c->chat_template_date)
		rc = moment_parse(&o.moment, c->chat_template_date);
	if (!rc)
		rc = chat_template_open(t, &o);
	json_decref(kwargs);
	mem_free(parent);
	return rc;
}

static void report_kwargs(const struct config *c, const struct chat_template *t)
{
	json_t *kwargs = NULL;
	const char *name;
	const json_t *value;

	if (read_kwargs(&kwargs, c))
		return;
	json_object_foreach(kwargs, name, value)
	{
		if (!json_is_null(value) && chat_template_lacks(t, name))
			log_warn("%s: %s has no effect: the template %s does not use it",
			        config_where(c, "chat_template_kwargs"), name, chat_template_name(t));
	}
	json_decref(kwargs);
}

void data_config_template_report(const struct config *c, const struct chat_template *t)
{
	if (config_was_set(c, "chat_template_date") && c->chat_template_date && !chat_template_dates(NULL, t))
		log_warn("%s=%s has no effect: the template %s does not write the date",
		        config_where(c, "chat_template_date"), config_said(c, "chat_template_date"),
		        chat_template_name(t));
	report_kwargs(c, t);
}

enum dataset_alpaca data_config_alpaca(const struct config *c)
{
	switch ((enum config_alpaca_form)c->alpaca_form) {
	case CONFIG_ALPACA_FORM_STANFORD:
		return DATASET_ALPACA_STANFORD;
	case CONFIG_ALPACA_FORM_STANFORD_NEWLINE:
		return DATASET_ALPACA_STANFORD_NEWLINE;
	case CONFIG_ALPACA_FORM_CHAT:
		return DATASET_ALPACA_CHAT;
	case CONFIG_ALPACA_FORM_AUTO:
		break;
	}
	return template_chosen(c) ? DATASET_ALPACA_CHAT : DATASET_ALPACA_STANFORD;
}

#define FIELD_NAME(id, name, usual) [ROW_FIELD_##id] = c->field_##name,
#define ROLE_NAME(id, name, canonical, usual) [ROW_ROLE_##id] = c->role_##name,

/* Which rows the objective reads. Without one of its own, `data` shows any, and `eval` reads texts. */
static enum dataset_pairs rows_of(const struct config *c)
{
	enum dataset_pairs rows = objective_of_config(c).type->rows;
	int is_text = rows == DATASET_PAIRS_NONE || rows == DATASET_PAIRS_ONLY || rows == DATASET_JUDGED_ONLY;

	return is_text && c->verb == VERB_DATA   ? DATASET_PAIRS_ANY
	       : is_text && c->verb == VERB_EVAL ? DATASET_PAIRS_NONE
	                                         : rows;
}

struct row_names data_config_names(const struct config *c)
{
	return (struct row_names){.fields = {ROW_FIELDS(FIELD_NAME)}, .roles = {ROW_ROLES(ROLE_NAME)}};
}

struct dataset_options data_config_options(const struct config *c, const char *path,
        const struct tokenizer *tokenizer, const struct chat_template *chat_template, int64_t vocab_count)
{
	static const enum dataset_long_rows long_rows[] = {
	        [CONFIG_LONG_ROWS_TRUNCATE] = DATASET_LONG_ROWS_TRUNCATE,
	        [CONFIG_LONG_ROWS_DROP] = DATASET_LONG_ROWS_DROP,
	        [CONFIG_LONG_ROWS_ERROR] = DATASET_LONG_ROWS_ERROR,
	        [CONFIG_LONG_ROWS_SPLIT] = DATASET_LONG_ROWS_SPLIT,
	};

	const char *split = path == c->eval_data ? c->eval_data_split : c->data_split;
	enum dataset_pairs rows = rows_of(c);
	int is_judged = rows == DATASET_JUDGED_ONLY;

	if (split && !*split)
		split = NULL;
	return (struct dataset_options){
	        .path = path,
	        .split = split                  ? split
	                 : path == c->eval_data ? "validation"
	                                        : "train",
	        .split_want = split ? FILES_SPLIT_ASKED : FILES_SPLIT_DEFAULT,
	        .format = (enum dataset_format)c->data_format,
	        .pairs = rows,
	        .has_words = c->whole_word_mask,
	        .texts = embedding_rows_of(c),
	        .names = data_config_names(c),
	        .tokenizer = tokenizer,
	        .vocab_count = vocab_count,
	        .max_length_tokens = c->max_length,
	        .long_rows = long_rows[c->long_rows],
	        .judged_group = c->per_device_train_batch_size > 1 ? c->per_device_train_batch_size
	                                                           : JUDGED_GROUP_ROWS,
	        .inputs = is_judged ? DATASET_INPUTS_MASK : c->train_on_inputs,
	        .turns = c->train_on_last_turn || is_judged ? DATASET_TURNS_LAST : DATASET_TURNS_ALL,
	        .chat_template = chat_template,
	        .alpaca = data_config_alpaca(c),
	        .max_samples = c->max_samples,
	};
}

/* ---- what has no effect ---- */

/* Keys that only chats know, and that were set: how many. */
static int chat_keys(struct str *out, const struct config *c, int has_turns)
{
	static const char *const keys[] = {"chat_template", "chat_template_kwargs", "chat_template_date",
	        "role_user", "role_assistant", "role_system", "role_tool", "role_tool_call",
	        "train_on_last_turn"};
	int count = (int)(sizeof(keys) / sizeof(*keys)) - (has_turns ? 1 : 0), found = 0;

	for (int i = 0; i < count; i++)
		if (config_was_set(c, keys[i]) && *config_text(c, keys[i]) &&
		        (strcmp(keys[i], "chat_template") || template_chosen(c)) &&
		        (strcmp(keys[i], "train_on_last_turn") || c->train_on_last_turn))
			str_printf(out, "%s%s=%s", found++ ? ", " : "", config_where(c, keys[i]),
			        config_said(c, keys[i]));
	return found;
}

static void counts_report(const struct dataset *d, const char *path)
{
	if (d->counts.truncated)
		log_info("%s: %" PRId64 " row%s cut to max_length", path, d->counts.truncated,
		        plural_s(d->counts.truncated));
	if (d->counts.split)
		log_info("%s: %" PRId64 " text%s split into rows of max_length", path, d->counts.split,
		        plural_s(d->counts.split));
	if (d->counts.turn_ends_cut)
		log_info("%s: max_length cut the end-of-turn token of %" PRId64 " of the assistant's turns",
		        path, d->counts.turn_ends_cut);
	if (d->counts.empty_answers)
		log_warn("%s: %" PRId64 " row%s with an empty answer, the first at %s%s", path,
		        d->counts.empty_answers, plural_s(d->counts.empty_answers),
		        d->counts.empty_answers_first,
		        d->is_paired ? "" : "; the model learns to say nothing");
	if (d->counts.dropped)
		log_info("%s: %" PRId64 " row%s dropped (longer than max_length)", path, d->counts.dropped,
		        plural_s(d->counts.dropped));
}

/* Warns of columns that say that the rows are meant for another kind of training. */
static void columns_warn(const struct config *c, const struct dataset *d)
{
	static const struct {
		const char *name, *why;
	} odd[] = {{"image", "only text is supported"}, {"images", "only text is supported"},
	        {"video", "only text is supported"}, {"videos", "only text is supported"},
	        {"audio", "only text is supported"}, {"audios", "only text is supported"},
	        {"chosen", "to train on pairs set preference_loss=sigmoid"},
	        {"rejected", "to train on pairs set preference_loss=sigmoid"},
	        {"kto_tag", "to train on judged answers set preference_loss=kto"}};
	const char *at = d->counts.unread_columns;

	while (*at) {
		size_t len = strcspn(at, ",");

		for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
			if (strlen(odd[i].name) == len && !strncmp(odd[i].name, at, len))
				log_warn("%s: the column \"%s\" is not read: %s", c->data, odd[i].name,
				        odd[i].why);
		at += len;
		at += strspn(at, ", ");
	}
}

void data_config_report(const struct config *c, const struct dataset *d)
{
	struct str keys = {0};
	int has_turns = 0, count = 0; /* alpaca rows have turns without being chats */

	for (int i = 0; i < d->set_count; i++)
		has_turns |= d->sets[i].format == DATASET_FORMAT_ALPACA;
	if (!d->counts.chats)
		count = chat_keys(&keys, c, has_turns);
	if (keys.data)
		log_warn("%s %s no effect: no row of %s is a chat (%s)", keys.data,
		        count > 1 ? "have" : "has", c->data, dataset_format_name(d->format));
	str_free(&keys);
	if ((d->is_paired || d->is_judged) && c->train_on_inputs && config_was_set(c, "train_on_inputs"))
		log_warn("%s=%s has no effect: with preference_loss only answers are trained",
		        config_where(c, "train_on_inputs"), config_said(c, "train_on_inputs"));
	columns_warn(c, d);
	if (c->verb != VERB_DATA)
		counts_report(d, c->data);
	if (*d->counts.unread_columns && c->verb != VERB_DATA)
		log_info("%s: columns not read: %s", c->data, d->counts.unread_columns);
}

int data_config_split(struct dataset **held_back, struct dataset *all, const struct config *c)
{
	int64_t count = dataset_unit_count(all);
	int rc = dataset_split(held_back, all, c->eval_split, (uint64_t)c->seed);

	if (rc == ERR_INPUT)
		return err_reword(rc, "%s=%s %s", config_where(c, "eval_split"), config_said(c, "eval_split"),
		        err_text());
	if (!rc && all->counts.split)
		log_warn(
		        "%s=%s: a long text may have pieces on both sides, so the loss of those held back is "
		        "too low; set eval_data to other texts",
		        config_where(c, "eval_split"), config_said(c, "eval_split"));
	if (rc || c->verb != VERB_EVAL)
		return rc;
	log_info("%s=%s: evaluating the %" PRId64 " %ss that a run with seed=%" PRId64
	         " holds back of %" PRId64 "; for all of them set eval_split=off",
	        config_where(c, "eval_split"), config_said(c, "eval_split"), dataset_unit_count(*held_back),
	        dataset_unit(*held_back), c->seed, count);
	dataset_close(all);
	return 0;
}

static void mix_begin(struct mix *mix, const struct config *c, const struct dataset *d)
{
	*mix = (struct mix){.set_count = d->set_count,
	        .end = c->data_mix == CONFIG_DATA_MIX_ALL_EXHAUSTED ? MIX_ALL_EXHAUSTED
	                                                            : MIX_FIRST_EXHAUSTED};
	for (int i = 0; i < d->set_count; i++)
		mix->sets[i] = (struct mix_set){.first = d->sets[i].first_row,
		        .row_count = d->sets[i].row_count,
		        .weight = d->sets[i].weight};
}

/* Whether some rows stay together. */
static int has_units(const struct dataset *d)
{
	return dataset_unit_count(d) < d->row_count;
}

/* With mixed sets each bin has rows of one set, and the mix draws bins. */
static int pack(struct packing **packing, struct mix *mix, const struct config *c, const struct dataset *d)
{
	int64_t *lengths = mem_alloc((size_t)d->row_count, sizeof(*lengths));
	int64_t starts[DATA_SETS_MAX + 1] = {0, d->row_count},
	                               each[DATA_SETS_MAX] = {dataset_set_unit_rows(d, 0)};
	int parts = 1, rc;

	if (!lengths)
		return ERR_NOMEM;
	for (int64_t i = 0; i < d->row_count; i++)
		lengths[i] = dataset_row_tokens(d, i);
	if ((mix && mix->set_count) || d->is_apart)
		for (parts = 0; parts < d->set_count; parts++) {
			starts[parts + 1] = starts[parts] + d->sets[parts].row_count;
			each[parts] = dataset_set_unit_rows(d, parts);
		}
	rc = has_units(d) ? packing_build_group_parts(packing, starts, parts, each)
	                  : packing_build_parts(packing, lengths, starts, parts, c->max_length);
	mem_free(lengths);
	for (int i = 0; !rc && mix && i < mix->set_count; i++) {
		mix->sets[i].first = starts[i];
		mix->sets[i].row_count = starts[i + 1] - starts[i];
	}
	return rc;
}

int data_config_pack(
        struct packing **packing, struct mix *mix, const struct config *c, const struct dataset *d)
{
	int rc = 0, bad = 0;

	if (mix && d->is_weighted)
		mix_begin(mix, c, d);
	for (int i = 0; mix && i < mix->set_count; i++)
		if (!d->sets[i].row_count)
			return err_set(
			        ERR_INPUT, "%s has a weight, but none of its rows are left", d->sets[i].name);
	if (c->packing == CONFIG_PACKING_BFD && has_units(d))
		return err_set(ERR_UNSUPPORTED, "%s=%s: %s are not packed; set packing=off",
		        config_where(c, "packing"), config_said(c, "packing"),
		        d->is_paired   ? "pairs"
		        : d->is_judged ? "rows of preference_loss=kto"
		                       : "texts of embedding_loss");
	if (c->packing == CONFIG_PACKING_BFD || has_units(d))
		rc = pack(packing, mix, c, d);
	if (!rc && mix && mix->set_count && (rc = mix_make(mix, &bad)))
		rc = err_note(rc, "%s", d->sets[bad].name);
	return rc;
}

const char *data_config_drawn(const struct dataset *d, const struct packing *packing)
{
	return d->is_paired ? "pairs" : packing && !d->texts && !d->is_judged ? "bins" : "rows";
}

int data_config_vocab_count(int64_t *vocab_count, const char *model_path)
{
	json_t *root = NULL, *text = NULL;
	const char *whole = NULL;
	char *path = NULL;
	int err = 0;

	*vocab_count = 0;
	if (!model_path)
		return 0;
	path = file_kind_of(model_path) == FILE_DIR ? file_join(model_path, "config.json")
	                                            : mem_strdup(model_path);
	if (!path)
		return ERR_NOMEM;
	if (file_kind_of(path) == FILE_REGULAR) {
		err = json_read_file(&root, path, CONFIG_BYTES_MAX);
		if (!err)
			err = text_part_config(&text, &whole, root, path);
		if (!err)
			err = json_get_int(text, path, "vocab_size", vocab_count);
		err = err < 0 ? err : 0;
		json_decref(text);
		json_decref(root);
	}
	mem_free(path);
	return err;
}
