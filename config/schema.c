/* The table of keys, made from the list in keys.inc. */
#include "config/table.h"

#include "data/chat/label.h"         /* IWYU pragma: keep */
#include "data/rows/row_formats.h"   /* IWYU pragma: keep */
#include "data/template/builtin.h"   /* IWYU pragma: keep */
#include "device/contrast_kind.h"    /* IWYU pragma: keep */
#include "device/device_attention.h" /* IWYU pragma: keep */
#include "device/pool_mode.h"        /* IWYU pragma: keep */
#include "device/preference.h"       /* IWYU pragma: keep */
#include "optim/schedule.h"          /* IWYU pragma: keep */
#include "optim/state_format.h"      /* IWYU pragma: keep */

#include <stdint.h>

/* Letters for the verbs column of keys.inc. */
#define T (1u << VERB_TRAIN)
#define E (1u << VERB_EVAL)
#define G (1u << VERB_GENERATE)
#define P (1u << VERB_PLAN)
#define X (1u << VERB_EXPORT)
#define M (1u << VERB_MERGE)
#define I (1u << VERB_INSPECT)
#define V (1u << VERB_VERIFY)
#define K (1u << VERB_TOKENIZE)
#define D (1u << VERB_DATA)
#define C (1u << VERB_CONFIG)
#define N (1u << VERB_INIT)
#define O (1u << VERB_TOPO)
#define B (1u << VERB_BENCH)
#define R (1u << VERB_REPORT)
#define W (1u << VERB_EMBED)
#define ENGINE (T | E | G | P | W)
#define ALL ((1u << VERB_COUNT) - 1)
#define ONCE VERB_SETTING_ONCE
#define SET VERB_SETTING_OF_SET

#define COUNT_MAX 9e15
#define YES "true on yes 1"
#define NO "false off no 0"
#define LATER "is not supported yet"
#define TEXT_OF(number) TEXT_AS_IT_IS(number)
#define TEXT_AS_IT_IS(number) #number
#define NAME_AND_COMMA(name) #name ", "

/* First the lists of words, then the rows that name them. */
#define KEY(...)
#define WORDS(name, ...) static const struct config_word name##_words[] = {__VA_ARGS__{0}};
#define WORDS_OF WORDS
#define WORD(value, name, aliases) {name, value, aliases, NULL},
#define REFUSED(value, name, aliases, why) {name, value, aliases, why},
#define FORMAT_WORD(id, name, aliases, function, fields, is_mine) WORD(DATASET_FORMAT_##id, name, aliases)
#define PREFERENCE_WORD(id, name, other, ...) WORD(PREFERENCE_##id, name, other)
#define CONTRAST_WORD(id, name, others, ...) WORD(CONTRAST_##id, name, others)
#define STATE_WORD(id, format, name, other, ...) WORD(ADAMW_STATE_##id, name, other)
#include "config/keys.inc"

const struct config_key config_keys[] = {
#define WORDS(name, list)
#define WORDS_OF(name, list)
#define KEY(name, field, type, group, preset, aliases, words, min, max, verbs, path, meaning)                \
	{#name, group, TYPE_##type, offsetof(struct config, field), preset, aliases, words, min, max, verbs, \
	        meaning, CONFIG_PATH_##path},
#include "config/keys.inc"
};

const int config_key_count = sizeof(config_keys) / sizeof(*config_keys);
