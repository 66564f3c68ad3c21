/* The questions of ferry config about rows, and the chat template that they may need. */
#include "cli/ask_parts.h"
#include "cli/cli.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "data/chat/chat_labels.h"
#include "data/chat/chat_template.h"
#include "data/template/template.h"
#include "data/tokenizer/tokenizer.h"
#include "train/inputs/data_config.h"
#include "train/session.h"

#include <inttypes.h>
#include <string.h>

enum saying { SAYING_ROWS, SAYING_NOTHING };

static void rows_describe(struct asking *a, const struct dataset *d, enum saying saying)
{
	a->longest_tokens = d->counts.longest_tokens;
	for (int64_t row = 0; row < d->row_count; row++)
		if (dataset_row_tokens(d, row) > a->longest_tokens)
			a->longest_tokens = dataset_row_tokens(d, row);
	str_free(&a->data_is);
	str_printf(&a->data_is, "%" PRId64 " %s%s of %s", dataset_unit_count(d), dataset_unit(d),
	        plural_s(dataset_unit_count(d)), dataset_format_name(d->format));
	if (saying == SAYING_ROWS)
		ask_say("  %s; the first has %" PRId64 " tokens, the longest %" PRId64 "\n",
		        a->data_is.data ? a->data_is.data : "", dataset_row_tokens(d, 0), a->longest_tokens);
}

/* Reads the rows, as pairs if a loss of pairs is set. */
static int data_try(struct asking *a, const char *preference_loss, enum saying saying)
{
	struct session s = {0};
	struct config c = {0};
	int rc = ask_setting(a, "preference_loss", preference_loss);

	if (!rc)
		rc = ask_resolved(&c, a, VERB_TRAIN);
	if (!rc)
		rc = session_open_model(&s, &c, SESSION_WEIGHTS_ELSEWHERE);
	if (!rc)
		rc = session_open_rows(&s);
	if (!rc) {
		rows_describe(a, s.train.data, saying);
		rc = str_check(&a->data_is);
	}
	a->is_paired = c.preference_loss != 0;
	session_close(&s);
	config_free(&c);
	return rc;
}

/* Reads the rows, as pairs if they are not read otherwise. */
static int data_try_both(struct asking *a, enum saying saying)
{
	struct err first = {0};
	int rc = data_try(a, "off", saying);

	if (rc != ERR_INPUT)
		return rc;
	err_take(&first, rc);
	return data_try(a, "sigmoid", saying) ? err_give(&first) : 0;
}

/* ---- the chat template ---- */

/* Names of the built-in templates that end a turn with a token of the model's tokenizer: "chatml, zephyr".
 * "" if the model has a template, or none of these fits. *first: the first of them. */
static int templates_offer(struct str *names, const char **first, const struct asking *a)
{
	struct tokenizer *tokenizer = NULL;
	struct chat_template *t = NULL;
	struct config c = {0};
	int rc = ask_resolved(&c, a, VERB_TRAIN);

	*first = NULL;
	if (!rc)
		rc = data_config_tokenizer(&tokenizer, &c, TOKENIZER_REQUIRED);
	if (!rc)
		rc = data_config_chat_template(&t, &c, NULL, tokenizer);
	for (int i = 0; !rc && chat_template_is_none(t) && jinja_builtin_name(i); i++) {
		const char *name = jinja_builtin_name(i);

		if (!chat_labels_template_fits(name, tokenizer))
			continue;
		str_printf(names, "%s%s", *first ? ", " : "", name);
		*first = *first ? *first : name;
	}
	chat_template_close(t);
	tokenizer_close(tokenizer);
	config_free(&c);
	return rc ? rc : str_check(names);
}

int ask_template_propose(struct asking *a)
{
	struct str names = {0};
	const char *first;
	int rc = ask_setting(a, "chat_template", "");

	if (!rc)
		rc = templates_offer(&names, &first, a);
	if (!rc && first) {
		ask_say("  the rows are chats, and the model has no chat template; its tokenizer works with "
		        "%s\n",
		        names.data);
		str_add(&a->proposed, first);
	}
	str_free(&names);
	return rc;
}

int ask_template_take(struct asking *a)
{
	int rc = ask_setting(a, "chat_template", a->answer);

	return rc ? rc : data_try_both(a, SAYING_ROWS);
}

/* Whether the rows, which are refused, are chats for which the model lacks a template that can be offered. */
static int template_is_missing(int *yes, struct asking *a)
{
	struct str names = {0};
	const char *first;
	int rc = templates_offer(&names, &first, a);

	*yes = 0;
	str_free(&names);
	if (rc || !first)
		return rc;
	rc = ask_setting(a, "chat_template", first);
	log_set_sink(NULL, NULL);
	if (!rc)
		rc = data_try_both(a, SAYING_NOTHING);
	cli_log_start();
	*yes = !rc;
	return rc == ERR_INPUT ? ask_setting(a, "chat_template", "") : rc;
}

/* ---- the rows ---- */

int ask_data_take(struct asking *a)
{
	char limit[24] = "off";
	struct err first = {0};
	int rc = ask_setting(a, "data", a->answer);

	if (a->max_positions > 0)
		snprintf(limit, sizeof(limit), "%" PRId64, a->max_positions);
	if (!rc) /* as long as they are; the next question is about it */
		rc = ask_setting(a, "max_length", limit);
	if (!rc)
		rc = ask_setting(a, "chat_template", "");
	a->asks_template = 0;
	if (!rc)
		rc = data_try_both(a, SAYING_ROWS);
	if (rc != ERR_INPUT)
		return rc;
	err_take(&first, rc);
	rc = template_is_missing(&a->asks_template, a);
	return rc || !a->asks_template ? err_give(&first) : 0;
}
