/* The program begins here; cli.c finds the command and runs it. */
#include "cli/cli.h"

int main(int argc, char *argv[])
{
	return cli_main(argc, argv);
}
