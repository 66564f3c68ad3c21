/* Finds the turns of the assistant in the text of a chat by rendering it with other contents. */
#include "data/chat/chat_turns.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* Where a message stands in the text: [start, end). */
struct place {
	enum { PLACE_UNKNOWN, PLACE_FOUND, PLACE_NONE } state;
	size_t start, end;
};

struct finder {
	const struct chat_template *t;
	const struct chat *chat;
	const char *text;
	size_t len_bytes;
	struct place *places; /* [message_count] */
	int64_t message_count;
	char *prompt;                      /* how the template asks for an answer */
	size_t prompt_bytes, header_bytes; /* the least of it that is a header */
};

/* ---- places ---- */

static int is_inside_character(const char *text, size_t at)
{
	return ((unsigned char)text[at] & 0xc0) == 0x80;
}

/* Where two texts part: the place of what differs in the first, [*start, *end). 0: they are equal. */
static int differ(size_t *start, size_t *end, const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	size_t first = 0, last = 0;

	while (first < a_bytes && first < b_bytes && a[first] == b[first])
		first++;
	if (first == a_bytes && first == b_bytes)
		return 0;
	while (first > 0 && first < a_bytes && is_inside_character(a, first))
		first--;
	while (last < a_bytes - first && last < b_bytes - first &&
	        a[a_bytes - 1 - last] == b[b_bytes - 1 - last])
		last++;
	while (last > 0 && is_inside_character(a, a_bytes - last))
		last--;
	*start = first;
	*end = a_bytes - last;
	return 1;
}

/* The place where the text changes with this change of a message: 1, 0 if there is none, or an error. */
static int find_change(size_t *start, size_t *end, struct finder *f, int64_t message, enum chat_change change)
{
	struct jinja_output other = {0};
	struct chat changed = {0};
	int rc = chat_change(&changed, f->chat, message, change);

	if (rc <= 0)
		return rc;
	rc = chat_template_render(f->t, &other, &changed, f->message_count, CHAT_PROMPT_OFF);
	if (!rc)
		rc = differ(start, end, f->text, f->len_bytes, other.text, other.len_bytes);
	else if (rc == ERR_INPUT)
		rc = 0; /* it refuses the changed chat */
	jinja_output_free(&other);
	json_decref(changed.messages);
	return rc;
}

static int has_words(const struct finder *f, int64_t message)
{
	const json_t *content =
	        json_object_get(json_array_get(f->chat->messages, (size_t)message), "content");
	const char *words = json_string_value(content);

	return words && words[strspn(words, " \t\r\n")];
}

/* Finds the place of a message, a thought and calls of tools included. A change from `first` on, as the
 * template may refuse a chat or write it in another way if the content is replaced. */
static int find_place(struct place *p, struct finder *f, int64_t message, enum chat_change first)
{
	size_t start, end;
	int rc = 0;

	for (enum chat_change change = first; !rc && change <= CHAT_CHANGE_LAST_OF_CONTENT; change++)
		rc = find_change(&p->start, &p->end, f, message, change);
	if (rc < 0)
		return rc;
	p->state = rc ? PLACE_FOUND : PLACE_NONE;
	if (p->state == PLACE_NONE)
		return 0;
	rc = find_change(&start, &end, f, message, CHAT_CHANGE_NO_THOUGHT);
	if (rc == 1 && start < p->start)
		p->start = start;
	if (rc >= 0)
		rc = find_change(&start, &end, f, message, CHAT_CHANGE_CALLS);
	if (rc == 1 && start < p->start)
		p->start = start;
	/* without its calls, the results of the tools may be gone too */
	if (rc == 1 && (end > p->end || !has_words(f, message)))
		p->end = end;
	return rc < 0 ? rc : 0;
}

static int place_of(struct place *p, struct finder *f, int64_t message)
{
	int rc = f->places[message].state ? 0
	                                  : find_place(&f->places[message], f, message, CHAT_CHANGE_CONTENT);

	*p = f->places[message];
	return rc;
}

static int refuse(const struct finder *f, int64_t message)
{
	return err_set(ERR_INPUT,
	        "the template %s does not write messages[%" PRId64
	        "] in a place of its own, so ferry cannot tell which tokens to train; set "
	        "train_on_last_turn=on or use a template with {%% generation %%}",
	        chat_template_name(f->t), message);
}

static int overlap(const struct place *a, const struct place *b)
{
	return a->state == PLACE_FOUND && b->state == PLACE_FOUND && a->start < b->end && b->start < a->end;
}

/* The place of another message than `message`, which stands at `own`. If they overlap, the content of the
 * other one decides how the template writes this one, as a question that looks like the result of a tool
 * does. A smaller change leaves that as it is. */
static int place_beside(
        struct place *p, struct finder *f, int64_t other, int64_t message, const struct place *own)
{
	int rc = place_of(p, f, other);

	if (!rc && overlap(p, own))
		rc = find_place(p, f, other, CHAT_CHANGE_INSIDE);
	if (!rc && overlap(p, own) && (other == message - 1 || other == message + 1))
		rc = refuse(f, message);
	return rc;
}

/* ---- headers ---- */

/* The last place of the longest beginning of the prompt that begins in [from, to): its length, and *end
 * behind it. It may reach into a thought, whose begin is in the prompt of some templates. */
static size_t find_header(size_t *end, const struct finder *f, size_t from, size_t to)
{
	size_t longest = 0;

	for (size_t at = from; f->prompt_bytes && at < to; at++) {
		size_t len = 0;

		while (len < f->prompt_bytes && at + len < f->len_bytes &&
		        f->text[at + len] == f->prompt[len])
			len++;
		if (len && len >= longest) {
			longest = len;
			*end = at + len;
		}
	}
	return longest;
}

/* Whether the whole prompt stands directly before `at`: nothing else can be the header then. */
static int is_behind_prompt(const struct finder *f, size_t at)
{
	return f->prompt_bytes && at >= f->prompt_bytes &&
	       !memcmp(f->text + at - f->prompt_bytes, f->prompt, f->prompt_bytes);
}

/* The end of the nearest place before `own`: of the message before, or of any if a template writes messages
 * in another order. */
static int end_before(size_t *end, struct finder *f, int64_t message, const struct place *own)
{
	struct place p;
	int rc = 0;

	*end = 0;
	for (int64_t i = message - 1; !rc && i >= 0; i--) {
		rc = place_beside(&p, f, i, message, own);
		if (rc || p.state != PLACE_FOUND || p.end > own->start)
			continue;
		if (p.end > *end)
			*end = p.end;
		if (i == message - 1)
			break;
	}
	return rc;
}

static int start_after(size_t *start, struct finder *f, int64_t message, const struct place *own)
{
	struct place p;
	int rc = 0;

	*start = f->len_bytes;
	for (int64_t i = message + 1; !rc && i < f->message_count; i++) {
		rc = place_beside(&p, f, i, message, own);
		if (rc || p.state != PLACE_FOUND || p.start < own->end)
			continue;
		if (p.start < *start)
			*start = p.start;
		if (i == message + 1)
			break;
	}
	return rc;
}

/* ---- turns ---- */

static int find_start(struct chat_turn *turn, struct finder *f, const struct place *own)
{
	size_t from = 0, end = 0, len;
	int rc;

	turn->start = own->start;
	if (is_behind_prompt(f, own->start))
		return 0;
	rc = end_before(&from, f, turn->message, own);
	if (rc)
		return rc;
	len = find_header(&end, f, from, own->start);
	if (len && len == f->prompt_bytes && end <= own->end)
		turn->start = end;
	else if (len && len >= f->header_bytes)
		turn->start = end - len + f->header_bytes;
	else /* without a header, the blank before an answer is its own: "[/INST] Hello" */
		while (turn->start > from && f->text[turn->start - 1] == ' ')
			turn->start--;
	return 0;
}

static int find_turn(struct chat_turn *turn, struct finder *f, size_t all_bytes)
{
	const json_t *message = json_array_get(f->chat->messages, (size_t)turn->message);
	struct place own;
	int rc = place_of(&own, f, turn->message);

	if (!rc && own.state != PLACE_FOUND)
		rc = refuse(f, turn->message);
	if (!rc)
		rc = find_start(turn, f, &own);
	if (!rc)
		rc = start_after(&turn->end, f, turn->message, &own);
	if (rc)
		return rc;
	if (turn->end == f->len_bytes)
		turn->end = all_bytes;
	turn->body_end =
	        own.end > turn->end || json_object_get(message, "tool_calls") ? turn->start : own.end;
	return 0;
}

int chat_turns_find(struct chat_turn *turns, int64_t turn_count, const struct chat_template *t,
        const struct chat *chat, const struct jinja_output *full, size_t rendered_bytes)
{
	struct finder f = {.t = t,
	        .chat = chat,
	        .text = full->text,
	        .len_bytes = rendered_bytes,
	        .message_count = (int64_t)json_array_size(chat->messages)};
	int rc;

	f.places = mem_alloc((size_t)f.message_count, sizeof(*f.places));
	rc = f.places ? chat_template_prompt(t, chat, &f.prompt, &f.header_bytes) : ERR_NOMEM;
	f.prompt_bytes = f.prompt ? strlen(f.prompt) : 0;
	for (int64_t i = 0; !rc && i < turn_count; i++)
		rc = find_turn(&turns[i], &f, full->len_bytes);
	for (int64_t i = 0; !rc && i + 1 < turn_count; i++) {
		if (turns[i].end > turns[i + 1].start)
			turns[i].end = turns[i + 1].start;
		if (turns[i].end < turns[i].body_end || turns[i].end < turns[i].start)
			rc = refuse(&f, turns[i].message);
	}
	mem_free(f.places);
	mem_free(f.prompt);
	return rc;
}
