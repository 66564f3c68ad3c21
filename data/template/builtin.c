/* Built-in templates: the usual formats of chats, by name.
 *
 * Each marks the assistant's words and their end-of-turn token with {% generation %}. The macro `text` joins
 * the texts of content parts; it ignores parts without text.
 */
#include "data/template/builtin.h"
#include "data/template/template.h"

#include <string.h>

#define TEXT_MACRO                                                                                           \
	"{%- macro text(m) %}{% if m.content is string %}{{ m.content }}{% elif m.content %}"                \
	"{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endmacro %}\n"

/* Turns of user and assistant must alternate, the user first. */
#define ALTERNATE                                                                                            \
	"{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                                             \
	"{{ raise_exception('turns of user and assistant must alternate, with nothing between') }}{% endif " \
	"%}\n"

#define SPLIT_SYSTEM                                                                                         \
	"{%- set has_system = messages and messages[0].role == 'system' %}\n"                                \
	"{%- set turns = messages[1:] if has_system else messages %}\n"

static const char chatml[] =
        TEXT_MACRO "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
                   "{%- if m.role == 'assistant' %}{% generation %}{{ text(m) + '<|im_end|>' }}{% "
                   "endgeneration %}{{ '\\n' }}"
                   "{%- else %}{{ text(m) + '<|im_end|>\\n' }}{% endif %}{% endfor %}\n"
                   "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char llama2[] = TEXT_MACRO SPLIT_SYSTEM
        "{%- for m in turns %}\n" ALTERNATE "{%- if m.role == 'user' %}\n"
        "{%- set head = '<<SYS>>\\n' + text(messages[0]) + '\\n<</SYS>>\\n\\n' if "
        "loop.first and has_system else '' %}\n"
        "{{- bos_token | default('') + '[INST] ' + (head + text(m)).strip() + ' [/INST]' }}\n"
        "{%- else %}{% generation %}{{ ' ' + text(m).strip() + ' ' + eos_token }}{% "
        "endgeneration %}{% endif %}\n"
        "{%- endfor %}";

static const char llama3[] =
        TEXT_MACRO "{{- bos_token | default('') }}\n"
                   "{%- for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
                   "{%- if m.role == 'assistant' %}{% generation %}{{ text(m) | trim + '<|eot_id|>' }}{% "
                   "endgeneration %}"
                   "{%- else %}{{ text(m) | trim + '<|eot_id|>' }}{% endif %}{% endfor %}\n"
                   "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' "
                   "}}{% endif %}";

static const char mistral[] = TEXT_MACRO SPLIT_SYSTEM
        "{{- bos_token | default('') }}\n"
        "{%- for m in turns %}\n" ALTERNATE "{%- if m.role == 'user' %}\n"
        "{{- ' [INST] ' + (text(messages[0]) + '\\n\\n' if loop.first and has_system else '') + text(m) + ' "
        "[/INST]' }}\n"
        "{%- else %}{% generation %}{{ ' ' + text(m) + eos_token }}{% endgeneration %}{% endif %}\n"
        "{%- endfor %}";

static const char gemma[] =
        TEXT_MACRO "{{- bos_token | default('') }}\n"
                   "{%- if messages and messages[0].role == 'system' %}{{ raise_exception('gemma has no "
                   "system role') }}{% endif %}\n"
                   "{%- for m in messages %}\n" ALTERNATE
                   "{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
                   "{%- if m.role == 'assistant' %}{% generation %}{{ text(m) | trim + '<end_of_turn>' }}{% "
                   "endgeneration %}{{ '\\n' }}"
                   "{%- else %}{{ text(m) | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}\n"
                   "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

static const char phi3[] = TEXT_MACRO
        "{%- for m in messages if m.role in ['system', 'user', 'assistant'] %}{{ '<|' + m.role + '|>\\n' }}"
        "{%- if m.role == 'assistant' %}{% generation %}{{ text(m) + '<|end|>' }}{% endgeneration %}{{ '\\n' "
        "}}"
        "{%- else %}{{ text(m) + '<|end|>\\n' }}{% endif %}{% endfor %}\n"
        "{{- '<|assistant|>\\n' if add_generation_prompt else eos_token }}";

static const char zephyr[] = TEXT_MACRO
        "{%- for m in messages if m.role in ['system', 'user', 'assistant'] %}{{ '<|' + m.role + '|>\\n' }}"
        "{%- if m.role == 'assistant' %}{% generation %}{{ text(m) + eos_token }}{% endgeneration %}{{ '\\n' "
        "}}"
        "{%- else %}{{ text(m) + eos_token + '\\n' }}{% endif %}{% endfor %}\n"
        "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

static const char alpaca[] = TEXT_MACRO SPLIT_SYSTEM
        "{{- bos_token | default('') + (text(messages[0]) | trim + '\\n\\n' if has_system else '') }}\n"
        "{%- for m in turns %}\n" ALTERNATE
        "{%- if m.role == 'user' %}{{ '### Instruction:\\n' + text(m) | trim + '\\n\\n' }}"
        "{%- else %}{{ '### Response:\\n' }}{% generation %}{{ text(m) | trim + eos_token }}{% endgeneration "
        "%}"
        "{{ '\\n\\n' }}{% endif %}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}";

static const char vicuna[] = TEXT_MACRO SPLIT_SYSTEM
        "{{- bos_token | default('') + (text(messages[0]) | trim + '\\n\\n' if has_system else '') }}\n"
        "{%- for m in turns %}\n" ALTERNATE
        "{%- if m.role == 'user' %}{{ 'USER: ' + text(m) | trim + '\\n' }}"
        "{%- else %}{{ 'ASSISTANT:' }}{% generation %}{{ ' ' + text(m) | trim + eos_token }}{% endgeneration "
        "%}"
        "{{ '\\n' }}{% endif %}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

static const struct {
	const char *name, *text;
} builtins[] = {
#define BUILTIN(name) {#name, name},
        JINJA_BUILTINS(BUILTIN)
#undef BUILTIN
                {NULL, NULL},
};

const char *jinja_builtin(const char *name)
{
	for (int i = 0; builtins[i].name; i++)
		if (!strcmp(builtins[i].name, name))
			return builtins[i].text;
	return NULL;
}

const char *jinja_builtin_name(int i)
{
	return builtins[i].name;
}
