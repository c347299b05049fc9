/** What a controller tells a device to do. */
export interface Command {
  readonly device: string;
  readonly sequence: number;
  readonly setpoint: number;
}

/** The role that may write and dispatch commands. */
export const CONTROLLER_ROLE = "controller";
