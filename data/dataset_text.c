
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

/* A string that must be there; its length, because it may hold a NUL. */
static int get_text(const struct dataset_builder *b, const json_t *record, const char *key, const char **text,
        size_t *len_bytes)
{
	int rc = json_get_str(record, b->where, key, text);

	if (rc == 0)
		return err_set(ERR_INPUT, "%s: there is no \"%s\"", b->where, key);
	*len_bytes = json_string_length(json_object_get(record, key));
	return rc < 0 ? rc : 0;
}

static int need_tokenizer(const struct dataset_builder *b)
{
	if (b->options->tokenizer)
		return 0;
	return err_set(ERR_INPUT, "%s: data of the %s format needs a tokenizer (tokenizer=DIR)", b->where,
	        dataset_format_name(b->d->format));
}

/* The end-of-text id behind the list, unless it is there already. */
static int add_end(const struct dataset_builder *b, struct token_list *list)
{
	int32_t eos = tokenizer_roles(b->options->tokenizer)->eos;

	if (eos < 0)
		return b->d->format == DATASET_FORMAT_TEXT
		               ? 0
		               : err_set(ERR_INPUT,
		                         "%s: the tokenizer names no eos_token, so answers would have no "
		                         "end; name it in "
		                         "tokenizer_config.json",
		                         b->where);
	if (list->count > 0 && list->ids[list->count - 1] == eos)
		return 0;
	return token_list_add(list, eos);
}

/* A row of prompt and answer, tokenized apart, which is what most trainers do: no token spans the border. */
static int add_answer(struct dataset_builder *b, const char *prompt, size_t prompt_bytes, const char *answer,
        size_t answer_bytes)
{
	const struct tokenizer *t = b->options->tokenizer;
	struct token_list *ids = b->prompt;
	int64_t masked;
	int rc;

	ids->count = b->answer->count = 0;
	rc = tokenizer_encode(t, ids, prompt, prompt_bytes, ADD_SPECIAL_BEFORE);
	masked = b->options->inputs == DATASET_INPUTS_TRAIN ? 0 : ids->count;
	if (rc == 0)
		rc = tokenizer_encode(t, b->answer, answer, answer_bytes, ADD_SPECIAL_NONE);
	if (rc < 0)
		return err_note(rc, "%s", b->where);
	rc = add_end(b, b->answer);
	for (int64_t i = 0; rc == 0 && i < b->answer->count; i++)
		rc = token_list_add(ids, b->answer->ids[i]);
	return rc < 0 ? rc : dataset_builder_add(b, ids->ids, NULL, ids->count, masked);
}

void dataset_alpaca_prompt(struct str *prompt, const char *instruction, size_t instruction_bytes,
        const char *input, size_t input_bytes)
{
	str_add(prompt, "Below is an instruction that describes a task");
	str_add(prompt, input_bytes > 0 ? ", paired with an input that provides further context. " : ". ");
	str_add(prompt, "Write a response that appropriately completes the request.\n\n### Instruction:\n");
	str_add_bytes(prompt, instruction, instruction_bytes);
	if (input_bytes > 0) {
		str_add(prompt, "\n\n### Input:\n");
		str_add_bytes(prompt, input, input_bytes);
	}
	str_add(prompt, "\n\n### Response:");
}

static int read_alpaca(struct dataset_builder *b, const json_t *record)
{
	static const char *const refused[] = {"system", "history"};
	const char *instruction = "", *input = "", *output = "";
	size_t instruction_bytes = 0, input_bytes = 0, output_bytes = 0;
	struct str prompt = {0};
	int rc = get_text(b, record, "instruction", &instruction, &instruction_bytes);

	for (int i = 0; rc == 0 && i < 2; i++) {
		const json_t *value = json_object_get(record, refused[i]);

		if (json_string_length(value) > 0 || json_array_size(value) > 0)
			rc = err_set(ERR_UNSUPPORTED, "%s: \"%s\" beside an instruction is not supported",
			        b->where, refused[i]);
	}
	if (rc == 0)
		rc = get_text(b, record, "output", &output, &output_bytes);
	if (rc == 0 && json_object_get(record, "input") && !json_is_null(json_object_get(record, "input")))
		rc = get_text(b, record, "input", &input, &input_bytes);
	if (rc < 0)
		return rc;
	dataset_alpaca_prompt(&prompt, instruction, instruction_bytes, input, input_bytes);
	rc = str_check(&prompt);
	if (rc == 0)
		rc = add_answer(b, prompt.data, prompt.len_bytes, output, output_bytes);
	str_free(&prompt);
	return rc;
}

static int read_prompt_completion(struct dataset_builder *b, const json_t *record)
{
	const char *prompt = "", *completion = "";
	size_t prompt_bytes = 0, completion_bytes = 0;
	int rc;

	if (json_is_array(json_object_get(record, "prompt")) ||
	        json_is_array(json_object_get(record, "completion")))
		return err_set(ERR_UNSUPPORTED,
		        "%s: prompt and completion as chats (lists of messages) are not supported; strings "
		        "are",
		        b->where);
	rc = get_text(b, record, "prompt", &prompt, &prompt_bytes);
	if (rc == 0)
		rc = get_text(b, record, "completion", &completion, &completion_bytes);
	return rc < 0 ? rc : add_answer(b, prompt, prompt_bytes, completion, completion_bytes);
}

/* The ids of one text with the template's and the end-of-text id, into b->prompt. */
static int encode_text(struct dataset_builder *b, const char *text, size_t len_bytes)
{
	int rc;

	b->prompt->count = 0;
	rc = tokenizer_encode(b->options->tokenizer, b->prompt, text, len_bytes, ADD_SPECIAL_ALL);
	if (rc < 0)
		return err_note(rc, "%s", b->where);
	return add_end(b, b->prompt);
}

int dataset_read_text(struct dataset_builder *b, const json_t *record)
{
	const char *text = "";
	size_t len_bytes = 0;
	int rc = need_tokenizer(b);

	if (rc < 0)
		return rc;
	if (b->d->format == DATASET_FORMAT_ALPACA)
		return read_alpaca(b, record);
	if (b->d->format == DATASET_FORMAT_PROMPT_COMPLETION)
		return read_prompt_completion(b, record);
	rc = get_text(b, record, b->text_field, &text, &len_bytes);
	if (rc == 0)
		rc = encode_text(b, text, len_bytes);
	return rc < 0 ? rc : dataset_builder_add(b, b->prompt->ids, NULL, b->prompt->count, 0);
}

/* The ids of the whole file in rows of max_length_tokens; a last row of one token would teach nothing. */
static int add_stretches(struct dataset_builder *b, const struct token_list *ids)
{
	int64_t stretch = b->options->max_length_tokens ? b->options->max_length_tokens : ids->count;
	int rc = 0;

	for (int64_t at = 0; rc == 0 && at < ids->count; at += stretch) {
		int64_t count = ids->count - at < stretch ? ids->count - at : stretch;

		if ((count == 1 && at > 0) ||
		        (b->options->max_samples && b->d->counts.records == b->options->max_samples))
			break;
		rc = dataset_builder_add(b, ids->ids + at, NULL, count, 0);
		b->d->counts.records++;
	}
	return rc;
}

int dataset_read_plain(struct dataset_builder *b)
{
	char *text = NULL;
	size_t len_bytes = 0;
	int rc = need_tokenizer(b);

	if (rc == 0)
		rc = file_read_all(b->options->path, TEXT_BYTES_MAX, &text, &len_bytes);
	if (rc == 0 && len_bytes == 0)
		rc = err_set(ERR_INPUT, "%s: the file is empty", b->options->path);
	if (rc == 0)
		rc = encode_text(b, text, len_bytes);
	if (rc == 0)
		rc = add_stretches(b, b->prompt);
	mem_free(text);
	return rc;
}
