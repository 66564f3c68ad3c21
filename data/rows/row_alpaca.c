/* Rows of Alpaca: instruction, input and output, maybe with a system text and earlier turns. */
#include "data/rows/row_formats.h"

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "data/chat/chat.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"

#include <string.h>

struct text_piece {
	const char *text;
	size_t len_bytes;
};

static void add_block(struct str *prompt, enum dataset_alpaca alpaca, struct text_piece instruction,
        struct text_piece input)
{
	str_add(prompt, "### Instruction:\n");
	str_add_bytes(prompt, instruction.text, instruction.len_bytes);
	if (input.len_bytes > 0) {
		str_add(prompt, "\n\n### Input:\n");
		str_add_bytes(prompt, input.text, input.len_bytes);
	}
	str_add(prompt, "\n\n### Response:");
	if (alpaca == DATASET_ALPACA_STANFORD_NEWLINE)
		str_add(prompt, "\n");
}

static void add_preamble(struct str *prompt, size_t input_bytes)
{
	str_add(prompt, "Below is an instruction that describes a task");
	str_add(prompt, input_bytes > 0 ? ", paired with an input that provides further context. " : ". ");
	str_add(prompt, "Write a response that appropriately completes the request.\n\n");
}

void dataset_alpaca_prompt(struct str *prompt, enum dataset_alpaca alpaca, const char *instruction,
        size_t instruction_bytes, const char *input, size_t input_bytes)
{
	add_preamble(prompt, input_bytes);
	add_block(prompt, alpaca, (struct text_piece){instruction, instruction_bytes},
	        (struct text_piece){input, input_bytes});
}

/* Reads a text that may be absent or null. */
static int optional(
        struct dataset_builder *b, const json_t *record, enum row_field field, struct text_piece *out)
{
	const json_t *value = dataset_builder_get(b, record, field);

	*out = (struct text_piece){"", 0};
	if (!value || json_is_null(value))
		return 0;
	return dataset_builder_text(b, record, field, &out->text, &out->len_bytes);
}

/* Checks earlier turns: [[question, answer], ...]. */
static int check_history(const struct dataset_builder *b, const json_t *history)
{
	const json_t *turn;
	size_t i;

	if (history && !json_is_null(history) && !json_is_array(history))
		return err_set(ERR_INPUT, "%s: \"history\" is %s; expected a list", b->where,
		        json_kind_name(history));
	json_array_foreach(history, i,
	        turn) if (json_array_size(turn) != 2 || !json_is_string(json_array_get(turn, 0)) ||
	                  !json_is_string(json_array_get(turn, 1))) return err_set(ERR_INPUT,
	        "%s: history[%zu] must be a list of two texts", b->where, i);
	return 0;
}

/* Appends a question and an answer in Stanford's form. A system text replaces its first sentences. */
static int say_pair(struct dataset_builder *b, struct text_piece system, struct text_piece instruction,
        struct text_piece input, struct text_piece answer, enum dataset_piece piece)
{
	struct str prompt = {0};
	int rc;

	if (b->ids->count) {
		str_add(&prompt, "\n\n");
	} else if (system.len_bytes) {
		str_add_bytes(&prompt, system.text, system.len_bytes);
		str_add(&prompt, "\n\n");
	} else {
		add_preamble(&prompt, input.len_bytes);
	}
	add_block(&prompt, b->options->alpaca, instruction, input);
	rc = str_check(&prompt);
	if (rc == 0)
		rc = dataset_builder_add_answer(
		        b, prompt.data, prompt.len_bytes, answer.text, answer.len_bytes, piece);
	str_free(&prompt);
	return rc;
}

static struct text_piece piece_of(const json_t *text)
{
	return (struct text_piece){json_string_value(text), json_string_length(text)};
}

static int read_stanford(struct dataset_builder *b, const json_t *record, struct text_piece instruction,
        struct text_piece input, struct text_piece output)
{
	const json_t *turn, *history = dataset_builder_get(b, record, ROW_FIELD_HISTORY);
	int only_last = b->options->turns == DATASET_TURNS_LAST || b->d->format == DATASET_FORMAT_PREFERENCE;
	enum dataset_piece earlier = only_last ? DATASET_PIECE_PROMPT : DATASET_PIECE_ANSWER;
	struct text_piece system, none = {"", 0};
	size_t i;
	int rc = dataset_builder_refuse_tools(b, record);

	if (rc == 0)
		rc = optional(b, record, ROW_FIELD_SYSTEM, &system);
	json_array_foreach(history, i, turn) if (rc == 0) rc = say_pair(b, system,
	        piece_of(json_array_get(turn, 0)), none, piece_of(json_array_get(turn, 1)), earlier);
	if (rc == 0)
		rc = say_pair(b, system, instruction, input, output, DATASET_PIECE_ANSWER);
	return rc < 0 ? rc : dataset_builder_add_said(b);
}

/* Reads the record as a chat, if the user chose a template. Instruction and input become one message. */
static int read_chat(struct dataset_builder *b, const json_t *record, struct text_piece instruction,
        struct text_piece input, enum row_field answer)
{
	int is_pair = b->d->format == DATASET_FORMAT_PREFERENCE;
	const json_t *turn, *system = dataset_builder_get(b, record, ROW_FIELD_SYSTEM);
	struct str question = {0};
	struct chat chat = {.names = b->names, .seen = &b->seen};
	json_t *text = NULL;
	size_t i;
	int rc = json_string_length(system) ? chat_add_text(&chat, "system", system, b->where) : 0;

	json_array_foreach(dataset_builder_get(b, record, ROW_FIELD_HISTORY), i, turn)
	{
		if (rc == 0)
			rc = chat_add_text(&chat, "user", json_array_get(turn, 0), b->where);
		if (rc == 0)
			rc = chat_add_text(&chat, "assistant", json_array_get(turn, 1), b->where);
	}
	str_add_bytes(&question, instruction.text, instruction.len_bytes);
	if (input.len_bytes) {
		str_add(&question, "\n");
		str_add_bytes(&question, input.text, input.len_bytes);
	}
	if (rc == 0)
		rc = str_check(&question);
	if (rc == 0) {
		text = json_stringn(question.data ? question.data : "", question.len_bytes);
		rc = text ? chat_add_text(&chat, "user", text, b->where) : ERR_NOMEM;
	}
	chat.prompt_count = is_pair ? (int64_t)json_array_size(chat.messages) : 0;
	if (rc == 0)
		rc = chat_add_text(&chat, "assistant", dataset_builder_get(b, record, answer), b->where);
	if (rc == 0)
		rc = dataset_builder_add_extras(b, &chat, record);
	if (rc == 0)
		rc = dataset_builder_add_chat(
		        b, &chat, is_pair ? DATASET_INPUTS_MASK : DATASET_INPUTS_PROMPTS);
	json_decref(text);
	str_free(&question);
	chat_free(&chat);
	return rc;
}

int dataset_builder_read_alpaca(struct dataset_builder *b, const json_t *record, enum row_field answer)
{
	struct text_piece instruction, input, output;
	int rc = dataset_builder_need_tokenizer(b);

	if (rc == 0)
		rc = dataset_builder_text(
		        b, record, ROW_FIELD_INSTRUCTION, &instruction.text, &instruction.len_bytes);
	if (rc == 0)
		rc = check_history(b, dataset_builder_get(b, record, ROW_FIELD_HISTORY));
	if (rc == 0)
		rc = dataset_builder_text(b, record, answer, &output.text, &output.len_bytes);
	if (rc == 0)
		rc = optional(b, record, ROW_FIELD_INPUT, &input);
	if (rc < 0)
		return rc;
	if (input.text == instruction.text)
		input.len_bytes = 0; /* field_instruction=input */
	return b->options->alpaca == DATASET_ALPACA_CHAT
	               ? read_chat(b, record, instruction, input, answer)
	               : read_stanford(b, record, instruction, input, output);
}

int row_alpaca_read(struct dataset_builder *b, const json_t *record)
{
	return dataset_builder_read_alpaca(b, record, ROW_FIELD_OUTPUT);
}
