/* Asks for the settings of a run, and writes them as a configuration file: ferry config without arguments. */
#ifndef FERRY_CLI_CONFIG_ASK_H
#define FERRY_CLI_CONFIG_ASK_H

/* Asks on stdout, and reads the answers from stdin, one a line; an empty one takes the value in brackets.
 * Says what is wrong with an answer and asks again on a terminal. ERR_INPUT: stdin ended, or is no
 * terminal and an answer was wrong; no file was written. */
int config_ask(void);

#endif
