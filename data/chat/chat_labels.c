/* Finds the trained turns of a chat in its text, and labels their tokens. */
#include "data/chat/chat_labels.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat/chat_lost.h"
#include "data/chat/chat_roles.h"
#include "data/chat/chat_turns.h"
#include "data/chat/label.h"
#include "data/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <string.h>

/* The borders of a turn in tokens, as data/chat/chat_turns.h has them in bytes. */
struct borders {
	int64_t first, body, limit;
};

struct work {
	struct chat_labels *l;
	const struct chat_template *t;
	const struct tokenizer *tokenizer;
	const struct chat *chat;
	struct jinja_output full;
	size_t rendered_bytes; /* of full, before its tail */
	struct chat_turn *turns;
	struct borders *borders; /* of each turn */
	int64_t turn_count, message_count;
	int is_marked;
	int is_in_pieces;   /* the turns are pieces of turns: */
	int64_t open_count; /* so many of them have no end */
	int is_trial;       /* a test chat of a built-in template: no advice in errors */
};

static const json_t *message_at(const struct chat *chat, int64_t i)
{
	return json_array_get(chat->messages, (size_t)i);
}

static int is_assistant(const struct chat *chat, int64_t i)
{
	return chat_is_assistant(message_at(chat, i));
}

/* ---- choice of turns ---- */

static int is_trained(const struct chat *chat, int64_t i)
{
	if (chat->train[i] != CHAT_TRAIN_UNSAID)
		return chat->train[i] == CHAT_TRAIN_YES;
	return i >= chat->prompt_count;
}

/* Lists the turns to train on. If all tokens are, these are the turns whose ends count. */
static int choose_turns(struct work *w, enum chat_turns turns)
{
	int64_t last = -1;

	w->turns = mem_alloc((size_t)w->message_count, sizeof(*w->turns));
	if (!w->turns)
		return ERR_NOMEM;
	for (int64_t i = 0; i < w->message_count; i++) {
		if (!is_assistant(w->chat, i)) {
			if (w->chat->train[i] == CHAT_TRAIN_YES && turns != CHAT_TURNS_ALL)
				return err_set(ERR_UNSUPPORTED,
				        "messages[%" PRId64 "] is not from the assistant but sets train; set "
				        "train_on_inputs=on",
				        i);
			continue;
		}
		last = i;
		if ((turns == CHAT_TURNS_ALL && w->chat->train[i] != CHAT_TRAIN_NO) ||
		        (turns == CHAT_TURNS_ASSISTANT && is_trained(w->chat, i)))
			w->turns[w->turn_count++].message = i;
	}
	if (turns == CHAT_TURNS_LAST && last >= 0 && w->chat->train[last] != CHAT_TRAIN_NO)
		w->turns[w->turn_count++].message = last;
	return 0;
}

/* ---- their places in the text ---- */

/* A template may ignore tool calls; training would then miss them silently. */
static int check_calls(const struct work *w, const struct chat_turn *turn)
{
	const json_t *calls = json_object_get(message_at(w->chat, turn->message), "tool_calls"), *call;
	size_t i;

	json_array_foreach(calls, i, call)
	{
		const char *name = chat_function_name(call);

		if (name && !memmem(w->full.text + turn->start, turn->end - turn->start, name, strlen(name)))
			return err_set(ERR_INPUT,
			        "messages[%" PRId64 "]: the template %s does not write tool calls; choose "
			        "another template with chat_template",
			        turn->message, chat_template_name(w->t));
	}
	return 0;
}

/* A template may mark a turn in several pieces, such as thought and answer. Which turn a piece belongs to is
 * not known, so all turns must be trained. */
static int marked_pieces(struct work *w)
{
	struct chat_turn *turns;

	for (int64_t i = 0; i < w->turn_count; i++) {
		struct chat_turn all = {.message = w->turns[i].message, .end = w->full.len_bytes};
		int rc = check_calls(w, &all);

		if (rc)
			return rc;
	}
	turns = mem_resize(w->turns, (size_t)w->full.span_count, sizeof(*turns));
	if (!turns)
		return ERR_NOMEM;
	w->is_in_pieces = 1;
	w->open_count = w->full.span_count - w->turn_count;
	w->turns = turns;
	w->turn_count = w->full.span_count;
	for (int64_t i = 0; i < w->turn_count; i++)
		turns[i] = (struct chat_turn){.message = w->message_count - 1,
		        .start = w->full.spans[i].start,
		        .body_end = w->full.spans[i].start,
		        .end = w->full.spans[i].end};
	return 0;
}

/* Matches the spans of {% generation %} with turns: each message of the assistant has one span, or all spans
 * are trained. */
static int marked_turns(struct work *w)
{
	int64_t assistants = 0, at = 0, span = 0;

	for (int64_t i = 0; i < w->message_count; i++)
		assistants += is_assistant(w->chat, i);
	if (assistants == w->turn_count && assistants < w->full.span_count)
		return marked_pieces(w);
	if (w->turn_count < assistants && assistants < w->full.span_count)
		return err_set(ERR_INPUT,
		        "the template %s marks answers in several pieces, so all of them must be trained; "
		        "remove train_on_last_turn, and train and weight from the rows",
		        chat_template_name(w->t));
	if (assistants != w->full.span_count)
		return err_set(ERR_INPUT,
		        "the template %s marks %" PRId64 " assistant turns, but the chat has %" PRId64
		        "; choose another template with chat_template",
		        chat_template_name(w->t), w->full.span_count, assistants);
	for (int64_t i = 0; i < w->message_count && at < w->turn_count; i++) {
		if (!is_assistant(w->chat, i))
			continue;
		if (w->turns[at].message == i) {
			w->turns[at].start = w->turns[at].body_end = w->full.spans[span].start;
			w->turns[at++].end = w->full.spans[span].end;
		}
		span++;
	}
	return 0;
}

/* Where all tokens are trained, a template may write turns that cannot be found. Then the whole text counts
 * as the last of them. */
static int find_turns(struct work *w, enum chat_turns turns)
{
	int rc = choose_turns(w, turns);

	w->is_marked = chat_template_marks(w->t, w->chat);
	if (!rc && w->is_marked)
		rc = marked_turns(w);
	else if (!rc)
		rc = chat_turns_find(w->turns, w->turn_count, w->t, w->chat, &w->full, w->rendered_bytes);
	if (rc != ERR_INPUT || turns != CHAT_TURNS_ALL || !w->turn_count)
		return rc;
	w->turns[0] =
	        (struct chat_turn){.message = w->turns[w->turn_count - 1].message, .end = w->full.len_bytes};
	w->turn_count = 1;
	w->is_marked = w->is_in_pieces = 0;
	return 0;
}

/* ---- text to tokens ---- */

static int encode(const struct work *w, struct token_list *ids, size_t from, size_t to)
{
	return tokenizer_encode(w->tokenizer, ids, w->full.text + from, to - from, ADD_SPECIAL_NONE);
}

enum { BORDERS = 3 };

/* Border k of the turns: the start, the end of the words and the end of each turn, in order. */
static size_t border(const struct work *w, int64_t k)
{
	const struct chat_turn *turn = &w->turns[k / BORDERS];
	const size_t at[BORDERS] = {turn->start, turn->body_end, turn->end};

	return at[k % BORDERS];
}

static void set_border(struct work *w, int64_t k, int64_t token)
{
	struct borders *b = &w->borders[k / BORDERS];
	int64_t *const at[BORDERS] = {&b->first, &b->body, &b->limit};

	*at[k % BORDERS] = token;
}

/* Tokenizes the pieces between borders one by one. Usually this gives the tokens of the whole text, and the
 * borders are where the pieces meet: 1. Otherwise 0. */
static int borders_by_pieces(struct work *w)
{
	struct token_list *pieces = &w->l->scratch;
	size_t at = 0;
	int rc = 0;

	pieces->count = 0;
	for (int64_t k = 0; !rc && k < BORDERS * w->turn_count; k++) {
		size_t to = border(w, k);

		if (to < at)
			return 0; /* turns overlap: borders_by_sides takes each border alone */
		rc = encode(w, pieces, at, to);
		set_border(w, k, pieces->count);
		at = to;
	}
	if (!rc)
		rc = encode(w, pieces, at, w->full.len_bytes);
	if (rc)
		return rc;
	return pieces->count == w->l->ids.count &&
	       !memcmp(pieces->ids, w->l->ids.ids, (size_t)pieces->count * sizeof(*pieces->ids));
}

/* Bytes of the text of the first `count` ids, and whether the whole text begins with it. */
static int decoded_bytes(size_t *len_bytes, int *is_same, const struct work *w, int64_t count)
{
	char *text = NULL;
	int rc = tokenizer_decode(w->tokenizer, &text, len_bytes, w->l->ids.ids, count, SKIP_SPECIAL_OFF);

	*is_same = !rc && *len_bytes <= w->full.len_bytes && !memcmp(text, w->full.text, *len_bytes);
	mem_free(text);
	return rc;
}

/* The token that begins at this byte, or that has it inside. */
static int border_by_bytes(int64_t *token, const struct work *w, size_t at)
{
	int64_t low = 0, high = w->l->ids.count; /* the first `low` ids end before `at`, `high` do not */
	size_t len_bytes;
	int is_same, rc = 0;

	while (!rc && low < high) {
		int64_t middle = low + (high - low) / 2;

		rc = decoded_bytes(&len_bytes, &is_same, w, middle);
		if (len_bytes < at)
			low = middle + 1;
		else
			high = middle;
	}
	*token = low > 0 ? low - 1 : 0;
	/* a cut character may decode to more bytes than it has */
	for (int64_t k = low; !rc && k <= w->l->ids.count && k < low + 4; k++) {
		rc = decoded_bytes(&len_bytes, &is_same, w, k);
		if (!rc && is_same && len_bytes == at) {
			*token = k;
			break;
		}
	}
	return rc;
}

/* Where the ids give back the text, a border is at the token that has its byte: 1. Otherwise 0. */
static int borders_by_bytes(struct work *w)
{
	size_t len_bytes;
	int is_same, rc = decoded_bytes(&len_bytes, &is_same, w, w->l->ids.count);

	if (rc || !is_same || len_bytes != w->full.len_bytes)
		return rc;
	for (int64_t k = 0; !rc && k < BORDERS * w->turn_count; k++) {
		int64_t token = 0;

		rc = border_by_bytes(&token, w, border(w, k));
		set_border(w, k, token);
	}
	return rc ? rc : 1;
}

/* Tokenizes the text on both sides of each border. If the ids of the text behind it end the whole, the border
 * is where they begin. Otherwise it is where the ids of the text before it and those of the whole begin to
 * differ: a token across the border belongs to what follows. */
static int borders_by_sides(struct work *w)
{
	const struct token_list *all = &w->l->ids;
	struct token_list *side = &w->l->scratch;
	int rc = 0;

	for (int64_t k = 0; !rc && k < BORDERS * w->turn_count; k++) {
		int64_t n = 0;

		side->count = 0;
		rc = encode(w, side, border(w, k), w->full.len_bytes);
		while (!rc && n < side->count && n < all->count &&
		        side->ids[side->count - 1 - n] == all->ids[all->count - 1 - n])
			n++;
		set_border(w, k, all->count - n);
		if (rc || n == side->count)
			continue;
		n = side->count = 0;
		rc = encode(w, side, 0, border(w, k));
		while (!rc && n < side->count && n < all->count && side->ids[n] == all->ids[n])
			n++;
		set_border(w, k, n);
	}
	return rc;
}

static int find_borders(struct work *w)
{
	int found;

	w->borders = mem_alloc((size_t)w->turn_count + 1, sizeof(*w->borders));
	if (!w->borders)
		return ERR_NOMEM;
	found = borders_by_pieces(w);
	if (!found)
		found = borders_by_bytes(w);
	return found < 0 ? found : found ? 0 : borders_by_sides(w);
}

/* ---- labels ---- */

static int make(struct work *w, enum chat_turns turns);

int chat_labels_template_fits(const char *name, const struct tokenizer *tokenizer)
{
	struct chat_template_options o = {.choice = name, .tokenizer = tokenizer};
	enum chat_train train[2] = {CHAT_TRAIN_UNSAID, CHAT_TRAIN_UNSAID};
	struct chat chat = {.train = train};
	struct chat_labels l = {0};
	struct chat_template *t = NULL;
	struct work w = {.l = &l, .tokenizer = tokenizer, .chat = &chat, .message_count = 2, .is_trial = 1};
	int rc = chat_template_open(&t, &o);

	chat.messages = json_pack(
	        "[{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "a", "role", "assistant", "content", "b");
	w.t = t;
	if (!rc)
		rc = chat.messages ? make(&w, CHAT_TURNS_ASSISTANT) : ERR_NOMEM;
	jinja_output_free(&w.full);
	mem_free(w.turns);
	mem_free(w.borders);
	chat_labels_free(&l);
	json_decref(chat.messages);
	chat_template_close(t);
	return !rc;
}

/* Appends the built-in templates that fit: "; this tokenizer works with chatml, zephyr". */
static void add_fitting(struct str *out, const struct tokenizer *tokenizer)
{
	const char *name;

	for (int i = 0; (name = jinja_builtin_name(i)); i++)
		if (chat_labels_template_fits(name, tokenizer))
			str_printf(out, "%s%s", out->len_bytes ? ", " : "; this tokenizer works with ", name);
}

static int no_end(const struct work *w, const struct chat_turn *turn)
{
	struct str fitting = {0};

	char *tail = NULL;
	size_t from = turn->end > turn->start + 24 ? turn->end - 24 : turn->start;
	int rc;

	while (from > turn->start && ((unsigned char)w->full.text[from] & 0xc0) == 0x80)
		from--;
	tail = mem_strndup(w->full.text + from, turn->end - from);
	for (char *c = tail; c && *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	if (!w->is_trial)
		add_fitting(&fitting, w->tokenizer);
	rc = err_set(ERR_INPUT,
	        "messages[%" PRId64 "]: the template %s writes no end-of-turn token of this tokenizer after "
	        "the answer (\"...%s\"), so the model would not learn to stop; choose "
	        "another template with chat_template%s",
	        turn->message, chat_template_name(w->t), tail ? tail : "", fitting.data ? fitting.data : "");
	str_free(&fitting);
	mem_free(tail);
	return rc;
}

static int add_end(struct chat_labels *l, int64_t at)
{
	if (l->end_count == l->end_cap) {
		int64_t cap = l->end_cap * 2 + 16;
		int64_t *grown = mem_resize(l->ends, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		l->ends = grown;
		l->end_cap = cap;
	}
	l->ends[l->end_count++] = at;
	return 0;
}

/* Whether only blanks follow in a turn. */
static int is_last(const struct work *w, int64_t at, int64_t limit)
{
	char *text = NULL;
	int blank;

	if (at + 1 >= limit)
		return 1;
	if (tokenizer_decode(
	            w->tokenizer, &text, NULL, w->l->ids.ids + at + 1, limit - at - 1, SKIP_SPECIAL_OFF))
		return 0;
	blank = !text[strspn(text, " \t\r\n")];
	mem_free(text);
	return blank;
}

/* Where a turn's labels end, and in *is_end whether an end-of-turn token is there; -1: it has none. Earlier
 * turns may end with a token that is no end of an answer. Behind the end, marks have nothing but blanks. */
static int64_t find_end(int *is_end, const struct work *w, int64_t i)
{
	const struct borders *b = &w->borders[i];
	int has_body = b->body > b->first;
	int64_t from = has_body ? b->body : b->first, end;
	enum chat_end which = has_body ? CHAT_END_FIRST : CHAT_END_LAST;

	end = chat_template_find_end(w->t, w->l->ids.ids, from, b->limit, which);
	if (end < 0 && !has_body && json_object_get(message_at(w->chat, w->turns[i].message), "tool_calls"))
		end = chat_template_find_call_end(w->t, w->l->ids.ids, from, b->limit);
	if (end >= 0 && w->is_marked && !is_last(w, end, b->limit))
		end = -1;
	*is_end = end >= 0;
	if (end < 0 && w->turns[i].message + 1 < w->message_count)
		end = chat_template_find_pause(w->t, w->l->ids.ids, from, b->limit, which);
	return end;
}

/* Whether the next message goes on with this turn: a template may put two answers in a row into one. */
static int goes_on(const struct work *w, int64_t i)
{
	return i + 1 < w->turn_count && w->turns[i + 1].message == w->turns[i].message + 1 &&
	       w->turns[i + 1].start == w->turns[i].end;
}

static int label_turns(struct work *w)
{
	struct chat_labels *l = w->l;
	int rc = 0;

	for (int64_t i = 0; !rc && i < w->turn_count; i++) {
		const struct chat_turn *turn = &w->turns[i];
		int is_end;
		int64_t end = find_end(&is_end, w, i);

		if (end < 0 && !goes_on(w, i) && (!w->open_count || i + 1 == w->turn_count))
			return no_end(w, turn);
		rc = w->is_in_pieces ? 0 : check_calls(w, turn);
		for (int64_t k = w->borders[i].first; k < (end < 0 ? w->borders[i].limit : end + 1); k++)
			l->labels.ids[k] = l->ids.ids[k];
		if (end < 0)
			w->open_count -= w->open_count > 0;
		else if (!rc && is_end)
			rc = add_end(l, end);
	}
	return rc;
}

/* Where all tokens are trained, a message whose flag excludes it is not, up to the end of its turn. */
static int leave_out(struct work *w)
{
	struct chat_labels *l = w->l;
	int64_t kept = 0;
	int rc = 0, is_end;

	mem_free(w->borders);
	w->borders = NULL;
	w->is_marked = 0;
	w->turn_count = 0;
	w->turns = mem_resize(w->turns, (size_t)w->message_count, sizeof(*w->turns));
	for (int64_t i = 0; i < w->message_count; i++)
		if (w->chat->train[i] == CHAT_TRAIN_NO)
			w->turns[w->turn_count++] = (struct chat_turn){.message = i};
	if (w->turn_count)
		rc = chat_turns_find(w->turns, w->turn_count, w->t, w->chat, &w->full, w->rendered_bytes);
	if (rc == ERR_INPUT)
		return err_reword(rc,
		        "a message is not to be trained (train, weight), but ferry does not find it in the "
		        "text "
		        "of the template %s; set train_on_inputs=off, or use a template with {%% generation "
		        "%%}",
		        chat_template_name(w->t));
	if (!rc)
		rc = find_borders(w);
	for (int64_t i = 0; !rc && i < w->turn_count; i++) {
		const struct borders *b = &w->borders[i];
		int64_t end = find_end(&is_end, w, i);

		if (end < 0)
			end = (b->body > b->first ? b->body : b->limit) - 1;
		for (int64_t k = b->first; k <= end; k++)
			l->labels.ids[k] = DATASET_IGNORE;
	}
	for (int64_t i = 0; !rc && i < l->end_count; i++)
		if (l->labels.ids[l->ends[i]] != DATASET_IGNORE)
			l->ends[kept++] = l->ends[i];
	l->end_count = rc ? 0 : kept;
	return rc;
}

/* After a call of tools another token follows than after an answer. */
static int has_tail(const struct chat *chat, int64_t message)
{
	return is_assistant(chat, message) && !json_object_get(message_at(chat, message), "tool_calls");
}

static int make(struct work *w, enum chat_turns turns)
{
	struct chat_labels *l = w->l;
	int rc = chat_template_render(w->t, &w->full, w->chat, w->message_count, CHAT_PROMPT_OFF);

	if (!rc)
		rc = chat_roles_check(w->t, w->chat, &w->full);
	if (!rc)
		rc = chat_lost_check(w->t, w->chat, &w->full);
	w->rendered_bytes = w->full.len_bytes;
	/* the checks compare renderings, which have no tail */
	if (!rc && has_tail(w->chat, w->message_count - 1))
		rc = chat_template_add_tail(w->t, &w->full);
	if (!rc)
		rc = encode(w, &l->ids, 0, w->full.len_bytes);
	if (!rc)
		rc = token_list_reserve(&l->labels, l->ids.count);
	if (rc)
		return rc;
	l->labels.count = l->ids.count;
	for (int64_t i = 0; i < l->ids.count; i++)
		l->labels.ids[i] = turns == CHAT_TURNS_ALL ? l->ids.ids[i] : DATASET_IGNORE;
	rc = find_turns(w, turns);
	if (!rc)
		rc = find_borders(w);
	if (!rc)
		rc = label_turns(w);
	return rc || turns != CHAT_TURNS_ALL ? rc : leave_out(w);
}

int chat_labels_make(struct chat_labels *l, const struct chat_template *t, const struct tokenizer *tokenizer,
        const struct chat *chat, enum chat_turns turns)
{
	struct work w = {.l = l, .t = t, .tokenizer = tokenizer, .chat = chat};
	int rc;

	l->ids.count = l->labels.count = l->end_count = 0;
	w.message_count = chat->messages ? (int64_t)json_array_size(chat->messages) : 0;
	if (!w.message_count)
		return err_set(ERR_INPUT, "the chat has no messages");
	rc = make(&w, turns);
	jinja_output_free(&w.full);
	mem_free(w.turns);
	mem_free(w.borders);
	return rc;
}

void chat_labels_free(struct chat_labels *l)
{
	token_list_free(&l->ids);
	token_list_free(&l->labels);
	token_list_free(&l->scratch);
	mem_free(l->ends);
	*l = (struct chat_labels){0};
}
