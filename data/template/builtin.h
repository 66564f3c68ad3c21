/* The names of the built-in chat templates: one list, for the table and for the help of chat_template. */
#ifndef FERRY_DATA_TEMPLATE_BUILTIN_H
#define FERRY_DATA_TEMPLATE_BUILTIN_H

/* ROW(name): a text of this name in builtin.c */
#define JINJA_BUILTINS(ROW)                                                                                  \
	ROW(chatml)                                                                                          \
	ROW(llama2) ROW(llama3) ROW(mistral) ROW(gemma) ROW(phi3) ROW(zephyr) ROW(alpaca) ROW(vicuna)

#endif
